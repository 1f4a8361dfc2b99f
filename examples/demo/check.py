"""What the demo claims, checked against the database, the stub downstream and an independent recomputation.

`judge` is pure: evidence in, verdicts out. Nothing here uses the code of the handlers.
"""

from __future__ import annotations

import hashlib
import lzma
import os
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from scaling import Scaling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import psycopg
    from inputs import File

STARTS_WITHIN = 2.0
"""Seconds from the burst's commit to the first job's start. The workers poll five times less often than that."""
WAKES_WITHIN = 2.0
"""Seconds from the burst's commit until the class at zero has a process. It takes a fraction of one where nobody else
needs the cores."""
SPENT_IN_VAIN = {"lost", "retry", "dead"}
"""Outcomes of an attempt that was counted and did not do the work."""
GIVEN_BACK = {"released", "snoozed"}
"""Outcomes of an attempt that was not counted."""


class Name(NamedTuple):
    """Which result: one for each kind, round and file."""

    kind: str
    round: int
    number: int


class Value(NamedTuple):
    """A result: bytes read, and the digest or the compressed size."""

    size: int
    answer: str


class Attempt(NamedTuple):
    """One attempt of one job, as the queue recorded it."""

    job: int
    budget: int
    number: int
    worker: str
    outcome: str


@dataclass(frozen=True)
class Evidence:
    """All that the verdicts are made from."""

    enqueued: Mapping[int, Name]
    statuses: Mapping[int, str]
    results: Sequence[tuple[Name, Value]]
    expected: Mapping[Name, Value]
    attempts: Sequence[Attempt]
    changed: frozenset[Name] = frozenset()
    """Results that cannot be compared, because their file changed while the demo ran."""
    scaling: Scaling = field(default_factory=Scaling)
    peak: int = 0
    limit: int = 0
    slots: int = 0
    """What the demand asked for, before the limit."""
    first_start: float = 0.0
    enqueued_twice: int = 0
    killed: str = ""
    """How the names of the killed worker's processes begin."""
    poison: int = 0
    poison_died_after: int = 0
    replaced: int = 0
    workers: int = 0
    restart_spent: int = 0
    """Attempts spent on anything but success between the restart's begin and its end, the poison's left out."""
    exit_status: int | None = 0
    survivors: Sequence[str] = ()
    registered: int = 0


@dataclass(frozen=True)
class Verdict:
    """One check: what should hold, whether it does, and the figures."""

    ok: bool
    claim: str
    detail: str


@dataclass
class Tally:
    """Figures of the summary."""

    jobs: int = 0
    lost: int = 0
    duplicates: int = 0
    redelivered: Counter[str] = field(default_factory=Counter)
    """Jobs that ran again, by why; one that did for two reasons counts in both."""
    attempts: Counter[int] = field(default_factory=Counter)
    """Jobs by their number of attempts, those before a redrive included, those given back not."""


def tally(evidence: Evidence) -> Tally:
    """Count."""
    found = Tally(jobs=len(evidence.enqueued))
    written = Counter(name for name, _ in evidence.results)
    found.duplicates = sum(count - 1 for count in written.values())
    found.lost = sum(
        evidence.statuses.get(job) != "done" or name not in written
        for job, name in evidence.enqueued.items()
        if name not in evidence.changed
    )
    reasons: dict[int, set[str]] = defaultdict(set)
    spent: Counter[int] = Counter()
    for attempt in evidence.attempts:
        spent[attempt.job] += attempt.outcome not in GIVEN_BACK
        if attempt.job == evidence.poison and attempt.outcome != "done":
            reasons[attempt.job].add("poison")
        elif attempt.outcome in SPENT_IN_VAIN | GIVEN_BACK:
            reasons[attempt.job].add(attempt.outcome)
    for why in reasons.values():
        found.redelivered.update(why)
    found.attempts = Counter(spent[job] for job in evidence.enqueued)
    return found


def judge(evidence: Evidence) -> list[Verdict]:
    """Return every verdict, in the order of the story."""
    counted = tally(evidence)
    wrong = _wrong(evidence)
    spent = [a for a in evidence.attempts if a.outcome in SPENT_IN_VAIN and a.job != evidence.poison]
    dropped = {a.job for a in spent if a.outcome == "lost" and evidence.killed and a.worker.startswith(evidence.killed)}
    recovered = sum(evidence.statuses.get(job) == "done" for job in dropped)
    unexplained = {a.job for a in spent} - dropped
    poison = evidence.statuses.get(evidence.poison)
    compared = len(evidence.expected) - len(evidence.changed & evidence.expected.keys())
    return [
        Verdict(
            evidence.first_start <= STARTS_WITHIN,
            "work starts on a burst",
            f"first job started {evidence.first_start * 1000:,.0f} ms after the commit; at most {STARTS_WITHIN:g} s",
        ),
        *_scaled(evidence.scaling),
        Verdict(
            evidence.enqueued_twice == 0,
            "the same keys enqueued again create nothing",
            f"{evidence.enqueued_twice} created",
        ),
        Verdict(
            1 < evidence.peak <= evidence.limit < evidence.slots,
            "the downstream's limit is held, and reached by more than one",
            f"peak {evidence.peak} callers at once, limit {evidence.limit}, demand {evidence.slots} slots",
        ),
        Verdict(
            evidence.replaced == evidence.workers > 0 and evidence.restart_spent == 0,
            "the rolling restart replaced every worker and cost no attempt",
            f"{evidence.replaced} of {evidence.workers} replaced, {evidence.restart_spent} attempts spent",
        ),
        Verdict(
            0 < len(dropped) == recovered,
            "what the worker held that was killed with -9 was run again and is done",
            f"{recovered} of {len(dropped)} jobs",
        ),
        Verdict(
            poison == "done" and evidence.poison_died_after > 1,
            "the poison job died, was redriven, and is done",
            f"dead after {evidence.poison_died_after} attempts, now {poison}",
        ),
        Verdict(
            not unexplained,
            "no other job lost an attempt",
            f"{len(unexplained)} did" + (f", e.g. {_some(unexplained)}" if unexplained else ""),
        ),
        Verdict(
            counted.lost == 0,
            "every job is done and its result recorded",
            f"{counted.jobs - counted.lost:,} of {counted.jobs:,}",
        ),
        Verdict(
            counted.duplicates == 0 and len(evidence.results) > 0,
            "no effect was recorded twice",
            f"{len(evidence.results):,} results, {counted.duplicates} of them again",
        ),
        Verdict(
            not wrong and compared > 0,
            "every result equals an independent recomputation",
            f"{compared - len(wrong):,} of {compared:,}" + (f"; wrong: {_some(wrong)}" if wrong else ""),
        ),
        Verdict(
            evidence.exit_status == 0 and not evidence.survivors and evidence.registered == 0,
            "the workers drained, and no process is left",
            f"exit status {evidence.exit_status}, {evidence.registered} workers still registered, "
            f"{len(evidence.survivors)} processes left",
        ),
    ]


def _scaled(found: Scaling) -> list[Verdict]:
    woken = f"{found.woken * 1000:,.0f} ms" if found.woken is not None else "never"
    at_zero = f"at zero {found.at_zero:.1f} s after its last job" if found.at_zero is not None else "not back at zero"
    return [
        Verdict(
            found.woken is not None and found.woken <= WAKES_WITHIN,
            "the class at zero wakes",
            f"its first process {woken} after the commit; at most {WAKES_WITHIN:g} s",
        ),
        Verdict(
            0 < found.oldest <= found.target,
            "its oldest job stays younger than its target",
            f"at most {found.oldest:.1f} s old, target {found.target:g} s, above it for {found.late:.1%} of the time",
        ),
        Verdict(
            found.most > 1 and found.at_zero is not None,
            "it grows with the burst, and goes back to zero",
            f"{found.most} workers at most, {at_zero}",
        ),
    ]


def _wrong(evidence: Evidence) -> list[Name]:
    got = dict(evidence.results)
    names = evidence.expected.keys() | got.keys()
    return sorted(name for name in names - evidence.changed if got.get(name) != evidence.expected.get(name))


def _some(items: Sequence[object] | set[int]) -> str:
    return ", ".join(str(item) for item in list(items)[:3])


def recompute(files: Sequence[File]) -> dict[tuple[str, int], Value]:
    """Hash and compress every file again, each in one piece, on all cores. A file that is gone has no answer.

    The keys are kind and the file's place in the list.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        answers = pool.map(_recompute, files)
        return {(kind, number): value for number, pair in enumerate(answers) for kind, value in pair.items()}


def _recompute(file: File) -> dict[str, Value]:
    try:
        content = file.path.read_bytes()
    except OSError:
        return {}
    packed = lzma.compress(content)
    if lzma.decompress(packed) != content:
        return {}
    return {
        "file.hash": Value(len(content), hashlib.sha256(content).hexdigest()),
        "file.compress": Value(len(content), str(len(packed))),
    }


def read_statuses(conn: psycopg.Connection[Any]) -> dict[int, str]:
    """Read every job's status."""
    return dict(conn.execute("SELECT id, status FROM jobqueue.jobs").fetchall())


def read_results(conn: psycopg.Connection[Any]) -> list[tuple[Name, Value]]:
    """Read every recorded result, as often as it is there."""
    rows = conn.execute("SELECT kind, round, number, size, answer FROM demo.result").fetchall()
    return [(Name(*row[:3]), Value(*row[3:])) for row in rows]


def read_attempts(conn: psycopg.Connection[Any]) -> list[Attempt]:
    """Read the whole history."""
    rows = conn.execute("SELECT job_id, budget, number, worker, outcome FROM jobqueue.attempts").fetchall()
    return [Attempt(*row) for row in rows]


def read_rates(conn: psycopg.Connection[Any], rounds: int) -> dict[str, float]:
    """Return jobs done a second: of the burst, which had so many rounds, by kind; and together under the name `all`.

    From the first start to the last end of those that are counted, with whatever went wrong in between.
    """
    rows = conn.execute(
        "SELECT coalesce(kind, 'all'),"
        "  count(*) / greatest(extract(epoch FROM max(finished_at) - min(started_at)), 0.001)::float8"
        " FROM jobqueue.jobs WHERE status = 'done' AND (payload->>'round')::int <= %s"
        " GROUP BY GROUPING SETS ((kind), ())",
        [rounds],
    ).fetchall()
    return {"file.hash": 0.0, "file.compress": 0.0, "all": 0.0, **dict(rows)}
