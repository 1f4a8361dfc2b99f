"""An explanation as lines for people."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from jobqueue.cli.writing import printable, show_seconds, show_time
from jobqueue_operator.planner.plan import Terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobqueue_operator.planner.explain import Explanation
    from jobqueue_operator.planner.facts import Attempts, ClassFacts
    from jobqueue_operator.planner.plan import Allocation
    from jobqueue_operator.planner.sensitivity import Change

TERMS = {
    "target": ("T", "s", "the target: no job waits longer"),
    "deadline": ("dl", "s", "T less what a decision may come late by"),
    "recovery": ("R", "s", "allowed for working off what is late already"),
    "start_delay": ("tau", "s", "from a worker's creation until it claims"),
    "slots": ("c", "jobs", "one worker runs at once"),
    "service": ("s", "s", "mean length of an attempt, cut off at dl"),
    "occupied": ("s_b", "s", "of a slot that each took lately, at least; 0 unless jobs wait"),
    "giants": ("L", "jobs", "running for longer than dl; each holds a slot"),
    "rate": ("lambda", "jobs/s", "arrivals"),
    "load": ("rho", "slots", "that arrivals and giants keep busy"),
    "steady": ("n_s", "workers", "for the load"),
    "lasting": ("lasting", "workers", "for the arrivals alone: what the long window keeps"),
    "catch_up": ("x", "workers", "more, so that no job becomes late"),
    "floor": ("y", "workers", "that the backlog needs, whatever the start delay"),
    "up": ("up", "workers", "to go up to"),
    "need": ("need", "workers", "needed now"),
    "keep": ("keep", "workers", "that the scale-in windows keep"),
    "window": ("W", "s", "that fewer must have been enough for"),
    "useful": ("useful", "workers", "beyond which slots would be empty"),
}
"""The law's terms: symbol, unit, meaning. docs/scaling.md derives them."""


def lines(found: Explanation) -> Iterator[str]:
    """Write an explanation, section by section; what there is nothing to say of is left out."""
    return map(printable, _lines(found))  # names and messages may have been written by anybody


def _lines(found: Explanation) -> Iterator[str]:
    decision = found.pool.decision
    there = sum(found.workers.values())
    yield f"{found.class_} at {show_time(datetime.fromtimestamp(found.now, UTC))}: {_workers(decision.replicas)}"
    yield f"  {decision.reason}: {decision.message}"
    if found.pool.replicas < decision.replicas:
        yield f"  {_workers(found.pool.replicas)} now: more when those that leave have given their units back"
    if found.repeats is False:
        yield "  (this release would decide otherwise from the same facts: the record was made by another one)"
    yield from _section("seen", _seen(found, there))
    if decision.terms is not None:
        yield from _section("law", _terms(decision.terms))
    yield from _section(
        "bounds, in the order in which they were applied",
        [(b.reason, f"{_workers(b.replicas)}: {b.message}") for b in decision.bounds],
    )
    if found.allocation is not None:
        yield from _section(f"downstream {found.allocation.downstream}", _downstream(found, found.allocation))
    remarks = [*decision.remarks, *(found.allocation.remarks if found.allocation is not None else ())]
    yield from _section("conditions", [(r.condition, r.message) for r in remarks])
    yield from _section("who goes", _steps(found))
    yield from _section("end of a worker", [("grace", found.drain)] if found.drain else [])
    for warning in found.warnings:
        yield f"  {warning}"
    yield from _section("what would change it", [(c.what, _change(c, decision.replicas)) for c in found.changes])


def _section(title: str, rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    if not rows:
        return
    yield ""
    yield title
    width = min(max(len(name) for name, _ in rows), 40)
    for name, text in rows:
        yield f"  {name.ljust(width)}  {text}".rstrip()


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def _change(change: Change, replicas: int) -> str:
    return "no change" if change.replicas == replicas else f"{_workers(change.replicas)} ({change.reason})"


def _seen(found: Explanation, there: int) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if not found.visible:
        rows.append(("queue", "could not be read"))
    elif found.facts is None:
        rows.append(("class", "not seen in the queue"))
    else:
        rows += _jobs(found.facts)
    phases = ", ".join(f"{count} {phase.lower()}" for phase, count in found.workers.items())
    waiting = f"; {found.waiting_for_units} of them wait for units" if found.waiting_for_units else ""
    rows.append(("workers", f"{there}: {phases}{waiting}" if there else "none"))
    return rows


def _jobs(seen: ClassFacts) -> list[tuple[str, str]]:
    about = "about " if seen.estimated else ""
    blocked = ", ".join(
        f"{count} {why}"
        for count, why in (
            (seen.unsupported, "that no worker understands"),
            (seen.blocked_key, "behind a key in use"),
            (seen.blocked_tenant, "of a tenant at its limit"),
        )
        if count
    )
    rows = [
        ("ready", f"{about}{seen.ready}" + (f"; more workers cannot help {seen.blocked}: {blocked}" * bool(blocked)))
    ]
    if seen.ready:
        rows.append(("oldest", show_seconds(seen.oldest_age)))
    if seen.ages:
        rows.append(("ages", " ".join(show_seconds(age) for age in seen.ages) + "  (oldest first, every eighth)"))
    if seen.scheduled:
        more = [
            now for now, before in zip(seen.due_soon, [(0.0, 0), *seen.due_soon], strict=False) if now[1] > before[1]
        ]
        soon = "; due within " + ", ".join(f"{show_seconds(s)}: {n}" for s, n in more) if more else ""
        rows.append(("scheduled", f"{about}{seen.scheduled}{soon}"))
    expired = f", and {seen.expired} whose lease is over" if seen.expired else ""
    rows.append(("in flight", f"{seen.in_flight}{expired}"))
    if seen.dead:
        rows.append(("dead", str(seen.dead)))
    if seen.paused:
        rows.append(("paused", "claims are stopped"))
    came = seen.arrivals
    spans = f"{came.before:g} in those before, {came.in_20s:g} in 20s, {came.in_60s:g} in 60s"
    rows.append(("arrivals", f"{came.last:g} in the last {show_seconds(came.tick)}, {spans}"))
    rows += _attempts(seen.attempts)
    return rows


def _attempts(seen: Attempts) -> list[tuple[str, str]]:
    rows = []
    count, spent = sum(s.count for s in seen.finished), sum(s.seconds for s in seen.finished)
    if count:
        failed = f", {seen.failed:.0f} failed" if seen.failed else ""
        rows.append(
            (
                "attempts",
                f"{count:.0f} ended{failed}, of the last {show_seconds(seen.window)}; mean {spent / count:.3g}s",
            )
        )
    running = sum(s.count for s in seen.running)
    if running:
        rows.append(("running", f"{running:.0f}, the longest up to {show_seconds(seen.running[-1].longest)}"))
    return rows


def _terms(terms: Terms) -> list[tuple[str, str]]:
    rows = []
    for member in fields(Terms):
        symbol, unit, meaning = TERMS.get(member.name, (member.name, "", ""))
        value = getattr(terms, member.name)
        shown = f"{value:.4g}" if isinstance(value, float) else str(value)
        rows.append((symbol, f"{shown} {unit}".ljust(18) + f" {meaning}"))
    return rows


def _downstream(found: Explanation, allocation: Allocation) -> list[tuple[str, str]]:
    used = "unknown" if allocation.in_use is None else str(allocation.in_use)
    rows = [
        ("units", f"{used} in use, {allocation.limit} given out, {allocation.ceiling} at most"),
        (allocation.reason, allocation.message),
    ]
    if len(allocation.limits) > 1:
        rows += [(f"database {name}", f"{units} units") for name, units in allocation.limits.items()]
    for share in allocation.shares:
        got = f"asks {share.asked}, gets {share.allocated} (reserved {share.minimum}): {_workers(share.replicas)}"
        held = f"; held back by {', '.join(share.held_back_by)}" if share.held_back_by else ""
        mark = " <" if share.pool == found.class_ else ""
        rows.append((share.pool, got + held + mark))
    if found.holds_back:
        rows.append(("wait for what it has", ", ".join(found.holds_back)))
    return rows


def _steps(found: Explanation) -> list[tuple[str, str]]:
    pool = found.pool
    rows = [("retire", f"{v.worker}: {v.reason}, {v.message}") for v in pool.retire]
    rows += [("take back", name) for name in pool.take_back]
    rows += [("stop", f"{v.worker}: {v.reason}, {v.message}") for v in pool.stop]
    if pool.rollout is not None:
        rows.append(("rollout", f"{pool.rollout.reason}: {pool.rollout.message}"))
    return rows
