"""What would change a decision: the planner asked again with one thing changed. Nothing here knows the law.

Everything that is not changed is held as it was seen. A change that acts at once is asked for over a few ticks, since
capacity moves after two that agree; one that lets workers go is asked for until the scale-in windows are over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from jobqueue_operator.planner.decide import plan
from jobqueue_operator.planner.plan import Reason
from jobqueue_operator.resources.durations import render
from jobqueue_operator.resources.job_class import REPLICAS_MOST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pydantic

    from jobqueue_operator.planner.facts import ClassFacts, Facts
    from jobqueue_operator.planner.plan import Decision, Plan
    from jobqueue_operator.planner.record import Tick
    from jobqueue_operator.planner.wanted import PoolSpec, Wanted
    from jobqueue_operator.resources import ClassSpec

M = TypeVar("M", bound="pydantic.BaseModel")

TICKS = 3
"""Ticks for what acts at once."""
HORIZON = 1800.0
"""Seconds that are looked ahead."""
TICKS_MOST = 400
READY_MOST = 10_000_000
UNITS_FACTOR_MOST = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing changed, and the decision it leads to."""

    what: str
    replicas: int
    reason: Reason
    after: float | None = None
    """Seconds of the same until then, where it is time that changes."""


def changes(tick: Tick, key: str) -> tuple[Change, ...]:
    """Return what would change the decision for one class, the likeliest questions first. Costs some 100 plans."""
    asked = next((pool for pool in tick.wanted.pools if pool.key == key), None)
    if asked is None:
        return ()
    return tuple(_Question(tick, asked).answers())


class _Question:
    """One class at one tick."""

    def __init__(self, tick: Tick, asked: PoolSpec) -> None:
        self._tick = tick = _concerning(tick, asked)
        self._asked = asked
        # After a line that could not be read the decision itself is all that is known of what was before it.
        self._previous = tick.previous if tick.linked else tick.plan
        recorded = tick.plan.pool(asked.key)
        self._now = self._decide()
        self._base = recorded.decision if recorded is not None else self._now

    def answers(self) -> Iterator[Change]:
        seen = self._tick.facts.classes.get(self._asked.key)
        if seen is not None and self._tick.facts.visible:
            yield from self._more_ready(seen)
            yield from self._as_time_goes_by()
            yield from self._more_load(seen)
        else:
            yield from self._as_time_goes_by()
        yield from self._other_spec()
        yield from self._more_units()

    def _more_ready(self, seen: ClassFacts) -> Iterator[Change]:
        """Find the smallest backlog, as old as the one there is, that would have one more worker."""

        def ready(count: int) -> Decision:
            ages = seen.ages or (0.0,) * 8
            return self._decide(facts=self._with_class(replace(seen, ready=count, ages=ages)))

        high = max(seen.ready, 1)
        while (found := ready(high)).replicas <= self._now.replicas:
            if high >= READY_MOST:
                yield self._change("any number of ready jobs", found)
                return
            high = min(high * 4, READY_MOST)
        least, found = _smallest(seen.ready, high, ready, self._now.replicas)
        yield self._change(f"{least} ready jobs instead of {seen.ready}", found)

    def _as_time_goes_by(self) -> Iterator[Change]:
        """Hold everything as it is, and look when the number changes."""
        base, last = self._base, 0.0
        for after, found in self._ahead():
            last = after
            if found.replicas != base.replicas:
                yield Change(
                    what=f"the same for {_span(after)}", replicas=found.replicas, reason=found.reason, after=after
                )
                return
        yield Change(what=f"the same for {_span(last)}", replicas=base.replicas, reason=base.reason, after=last)

    def _more_load(self, seen: ClassFacts) -> Iterator[Change]:
        came = seen.arrivals
        twice = replace(
            came, last=2 * came.last, before=2 * came.before, in_20s=2 * came.in_20s, in_60s=2 * came.in_60s
        )
        if came != twice:
            yield self._change(
                "twice the arrivals", self._decide(facts=self._with_class(replace(seen, arrivals=twice)))
            )

    def _other_spec(self) -> Iterator[Change]:
        spec = self._asked.spec
        replicas, target = spec.replicas, spec.target.oldest_message_age
        for other in (target / 2, target * 2):
            changed = _copy(spec, target=_copy(spec.target, oldest_message_age=other))
            yield self._settled(f"target {render(other)} instead of {render(target)}", changed)
        reasons = {self._now.reason, *(bound.reason for bound in self._now.bounds)}
        if Reason.MAXIMUM_REPLICAS in reasons:
            changed = _copy(spec, replicas=_copy(replicas, max=REPLICAS_MOST))
            yield self._change(f"no replicas.max {replicas.max}", self._decide(self._with_spec(changed)))
        if reasons & {Reason.MINIMUM_REPLICAS, Reason.SCHEDULED_MINIMUM}:
            changed = _copy(spec, replicas=_copy(replicas, min=0), schedule=())
            yield self._settled(f"no minimum (replicas.min {replicas.min})", changed)
        if spec.paused:
            yield self._change("not paused", self._decide(self._with_spec(_copy(spec, paused=False))))

    def _more_units(self) -> Iterator[Change]:
        """Find the fewest further units of the downstream that would give another worker."""
        name = self._asked.downstream
        wanted = self._tick.wanted
        capacity = next((c for c in wanted.capacities if c.name == name), None)
        given = self._tick.plan.downstream(name) if name is not None else None
        reasons = {self._now.reason, *(bound.reason for bound in self._now.bounds)}
        if capacity is None or given is None or Reason.DOWNSTREAM_CAPACITY not in reasons:
            return

        def decide(**changed: Any) -> Decision:
            other = replace(capacity, spec=_copy(capacity.spec, **changed))
            others = tuple(other if c.name == name else c for c in wanted.capacities)
            return self._decide(replace(wanted, capacities=others))

        def units(count: int) -> Decision:
            return decide(units=count + capacity.spec.reserve)

        limit = given.ceiling
        if given.limit < limit:
            what = f"all {limit} units of {name} instead of the {given.limit} that it bears now"
            yield self._change(what, decide(adaptive=_copy(capacity.spec.adaptive, enabled=False)))
            return
        high = limit + 1
        while (found := units(high)).replicas <= self._now.replicas:
            if high > limit * UNITS_FACTOR_MOST:
                yield self._change("any number of units", found)
                return
            high = limit + 2 * (high - limit)
        least, found = _smallest(limit, high, units, self._now.replicas)
        yield self._change(f"{least} units of {name} instead of {limit}", found)

    def _settled(self, what: str, spec: ClassSpec) -> Change:
        """Return where a spec leads when all windows are over, unless the one there is leads there too."""
        *_, (_, found) = self._ahead(self._with_spec(spec))
        *_, (_, anyway) = self._ahead()
        return self._change(what, self._base if found.replicas == anyway.replicas else found)

    def _ahead(self, wanted: Wanted | None = None) -> Iterator[tuple[float, Decision]]:
        """Plan on with everything held; return the seconds since this tick and the decision, tick by tick."""
        previous, step = self._previous, max(self._tick.tick, 0.1)
        for count in range(min(int(HORIZON / step), TICKS_MOST) + 1):
            previous = self._plan(wanted or self._tick.wanted, self._tick.facts, previous, count * step)
            yield count * step, self._of(previous)

    def _decide(self, wanted: Wanted | None = None, facts: Facts | None = None) -> Decision:
        previous: Plan | None = self._previous
        for count in range(TICKS):
            previous = self._plan(
                wanted or self._tick.wanted, facts or self._tick.facts, previous, count * self._tick.tick
            )
        return self._of(previous)

    def _of(self, made: Plan | None) -> Decision:
        pool = made.pool(self._asked.key) if made is not None else None
        if pool is None:
            raise ValueError(f"class {self._asked.key} was asked for and not planned")
        return pool.decision

    def _plan(self, wanted: Wanted, facts: Facts, previous: Plan | None, after: float) -> Plan:
        return plan(wanted, facts, previous, now=self._tick.now + after, tick=self._tick.tick)

    def _change(self, what: str, found: Decision) -> Change:
        return Change(what=what, replicas=found.replicas, reason=found.reason)

    def _with_class(self, seen: ClassFacts) -> Facts:
        return replace(self._tick.facts, classes={**self._tick.facts.classes, self._asked.key: seen})

    def _with_spec(self, spec: ClassSpec) -> Wanted:
        wanted = self._tick.wanted
        changed = replace(self._asked, spec=spec)
        return replace(wanted, pools=tuple(changed if p.key == changed.key else p for p in wanted.pools))


def _concerning(tick: Tick, asked: PoolSpec) -> Tick:
    """Return a tick without the pools that have no say in the decision: those that share no downstream with it."""
    pools = tuple(
        p for p in tick.wanted.pools if p is asked or (p.downstream is not None and p.downstream == asked.downstream)
    )
    keys = {pool.key for pool in pools}
    return replace(
        tick,
        wanted=replace(tick.wanted, pools=pools),
        facts=replace(tick.facts, workers=tuple(w for w in tick.facts.workers if w.class_ in keys)),
    )


def _smallest(low: int, high: int, ask: Callable[[int], Decision], replicas: int) -> tuple[int, Decision]:
    """Return the smallest count in (low, high] that gives more workers than `replicas`, as `high` does."""
    found = ask(high)
    while high - low > 1:
        middle = (low + high) // 2
        decided = ask(middle)
        if decided.replicas > replicas:
            high, found = middle, decided
        else:
            low = middle
    return high, found


def _copy(model: M, **changed: Any) -> M:
    return model.model_copy(update=changed)


def _span(seconds: float) -> str:
    return render(timedelta(seconds=round(seconds, 1)))
