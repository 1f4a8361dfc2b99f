"""The demo's end: the evidence is collected, summed up and judged."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import check
import product
from check import Evidence, Value

import scaling
from scaling import Scaling

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scenes import Stage


def conclude(stage: Stage) -> int:
    """Recompute every result, check every claim, and sum up."""
    tell, files = stage.narrator, stage.found.files
    tell.step("recompute", f"{len(files):,} files are hashed and compressed again, with other code, to compare")
    again = check.recompute(files)
    enqueued = stage.load.enqueued
    changed = {number for number, file in enumerate(files) if not file.unchanged()}
    if changed:
        tell.detail(f"{len(changed)} files changed while this ran; their results cannot be compared")
    expected = {name: again[name.kind, name.number] for name in enqueued.values() if (name.kind, name.number) in again}
    expected[enqueued[stage.poison]] = Value(0, "repaired")
    evidence = Evidence(
        enqueued=enqueued,
        statuses=check.read_statuses(stage.conn),
        results=check.read_results(stage.conn),
        expected=expected,
        attempts=check.read_attempts(stage.conn),
        changed=frozenset(n for n in enqueued.values() if n.number in changed and n.kind != "demo.poison"),
        scaling=_scaling(stage),
        peak=stage.downstream.peak,
        limit=stage.one("SELECT unit_limit FROM jobqueue.downstream"),
        slots=sum(stage.up.asked.get(spec.name, 0) for spec in product.classes() if spec.capacity is not None),
        first_start=stage.first_start,
        enqueued_twice=stage.enqueued_twice,
        killed=stage.killed,
        poison=stage.poison,
        poison_died_after=stage.poison_died_after,
        replaced=stage.replaced,
        workers=stage.workers,
        restart_spent=stage.restart_spent,
        exit_status=stage.up.exit_status,
        survivors=stage.up.survivors(),
        registered=stage.one("SELECT count(*) FROM jobqueue.workers"),
    )
    tell.title("Summary")
    tell.figures(_figures(evidence, check.read_rates(stage.conn, stage.rounds)))
    tell.title("Checks")
    verdicts = check.judge(evidence)
    for verdict in verdicts:
        tell.verdict(verdict)
    failed = sum(not verdict.ok for verdict in verdicts)
    tell.title(
        f"{failed} of {len(verdicts)} checks FAILED"
        if failed
        else f"All {len(verdicts)} checks hold, {tell.elapsed:.0f} s"
    )
    return 1 if failed else 0


def _scaling(stage: Stage) -> Scaling:
    waits = scaling.read_waits(stage.conn)
    target = next(spec.target.oldest_message_age for spec in product.classes() if spec.name == scaling.CLASS)
    return Scaling(
        target=target.total_seconds(),
        oldest=max((started - due for due, started in waits), default=0.0),
        late=scaling.share_late(waits, target.total_seconds()),
        woken=stage.woken,
        most=stage.up.most.get(scaling.CLASS, 0),
        at_zero=stage.at_zero,
    )


REASONS = {
    "lost": "held by the killed worker",
    "released": "given back by a draining worker, attempt refunded",
    "retry": "failed",
    "snoozed": "put off",
    "dead": "gave up",
    "poison": "poison, until it was redriven",
}


def _figures(evidence: Evidence, rates: Mapping[str, float]) -> list[tuple[str, str, str]]:
    counted = check.tally(evidence)
    kinds = Counter(name.kind for name in evidence.enqueued.values())
    why = " · ".join(f"{count:,} {REASONS.get(reason, reason)}" for reason, count in counted.redelivered.most_common())
    spread = " · ".join(f"{number} for {jobs:,}" for number, jobs in sorted(counted.attempts.items()))
    hashes, compressions = rates["file.hash"], rates["file.compress"]
    speeds = (
        f"of the burst; its hashes alone {hashes:,.0f}, its compressions, {evidence.peak} at once, {compressions:,.0f}"
    )
    scaled = evidence.scaling
    return [
        ("jobs", f"{counted.jobs:,}", " · ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())),
        ("lost", f"{counted.lost:,}", "enqueued, and not done or without a result"),
        ("duplicate effects", f"{counted.duplicates:,}", "results recorded more than once"),
        ("redelivered", f"{counted.redelivered.total():,}", why),
        (
            "oldest age",
            f"{scaled.oldest:.1f} s",
            f"of the class from zero; its target is {scaled.target:g} s, above it for {scaled.late:.1%} of the time",
        ),
        ("workers", f"0→{scaled.most}→{'?' if scaled.at_zero is None else 0}", "of that class, at most and in the end"),
        (
            "peak units",
            f"{evidence.peak}/{evidence.limit}",
            f"callers at once downstream; the demand was {evidence.slots} slots",
        ),
        ("attempts", f"{sum(k * n for k, n in counted.attempts.items()):,}", spread),
        ("jobs/s", f"{rates['all']:,.0f}", speeds),
    ]
