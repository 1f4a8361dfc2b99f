"""One decision with everything that belongs to it: what was seen, what the law made of it, what would change it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobqueue_operator.planner import draining, sensitivity
from jobqueue_operator.planner.decide import plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobqueue_operator.planner.facts import ClassFacts, DownstreamFacts
    from jobqueue_operator.planner.plan import Allocation, Pool, Share
    from jobqueue_operator.planner.record import Tick


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One class at one tick."""

    now: float
    """Seconds since the epoch."""
    tick: float
    class_: str
    visible: bool
    """Whether the queue could be read."""
    facts: ClassFacts | None
    """None when the class was not seen."""
    workers: Mapping[str, int]
    """How many workers there are, by phase."""
    waiting_for_units: int
    """Of them, those that wait to be admitted by their downstream."""
    pool: Pool
    """The decision, its terms and bounds, and who goes."""
    allocation: Allocation | None
    """The downstream's units, where the class leans on one."""
    share: Share | None
    in_use: tuple[DownstreamFacts, ...]
    """The downstream as each database's queue sees it."""
    holds_back: tuple[str, ...]
    """Pools that wait for units that this one has."""
    drain: str
    """The sum of a worker's grace period; empty for a class that is no longer asked for."""
    warnings: tuple[str, ...]
    """What is allowed in the class's numbers and worth saying."""
    changes: tuple[sensitivity.Change, ...]
    repeats: bool | None
    """Whether this release decides the same from the same facts; None when the plan before is not known."""


def explain(tick: Tick, key: str) -> Explanation | None:
    """Explain the decision for one class, or None when the tick has none."""
    pool = tick.plan.pool(key)
    if pool is None:
        return None
    asked = next((p for p in tick.wanted.pools if p.key == key), None)
    downstream = asked.downstream if asked is not None else None
    allocation = tick.plan.downstream(downstream) if downstream is not None else None
    shares = allocation.shares if allocation is not None else ()
    workers = [w for w in tick.facts.workers if w.class_ == key]
    return Explanation(
        now=tick.now,
        tick=tick.tick,
        class_=key,
        visible=tick.facts.visible,
        facts=tick.facts.classes.get(key),
        workers=dict(Counter(w.phase.value for w in workers)),
        waiting_for_units=sum(1 for w in workers if not w.admitted),
        pool=pool,
        allocation=allocation,
        share=next((s for s in shares if s.pool == key), None),
        in_use=tick.facts.downstreams.get(downstream, ()) if downstream is not None else (),
        holds_back=tuple(s.pool for s in shares if key in s.held_back_by),
        drain=draining.ending(asked.spec).sum if asked is not None else "",
        warnings=tuple(f"{w.condition}: {w.message}" for w in draining.warnings(asked.spec))
        if asked is not None
        else (),
        changes=sensitivity.changes(tick, key),
        repeats=_again(tick, key),
    )


def _again(tick: Tick, key: str) -> bool | None:
    if not tick.linked:
        return None
    made = plan(tick.wanted, tick.facts, tick.previous, now=tick.now, tick=tick.tick).pool(key)
    return made == tick.plan.pool(key)
