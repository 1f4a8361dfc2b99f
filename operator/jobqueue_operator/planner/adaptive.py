"""A downstream's working limit: less than what its manifest allows while more jobs at once do not get more done.

Three signs, each of which must last for three service times and the two ticks that lengths are measured over: the share
of attempts that fail, the mean length of an attempt, and the lack of speed-up. The last sets that length against the
number in flight: below its knee a downstream answers as fast as ever; beyond it, attempts take longer in proportion to
how many there are. By Little's law their quotient is what it gets done, whatever arrives; completions by themselves
only follow the arrivals, and say the same only while jobs wait.

The limit goes down by a fifth of what is in flight, and comes back by a unit a tick. When less got done then, it was
the jobs that had become longer, not the downstream that was full: the limit goes back at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jobqueue_operator.planner.memory import Best, CapacityMemory
from jobqueue_operator.planner.plan import Condition, Reason, Remark

if TYPE_CHECKING:
    from jobqueue_operator.planner.wanted import CapacitySpec

LOWER_TO = 0.8
SERVICE_TIMES = 3.0
TICKS = 2.0
ATTEMPTS_LEAST = 20
"""Finished attempts below which a share of failures says nothing."""
GROWN = 1.2
"""In flight, against what did as much before, from which a lack of speed-up is one."""
MORE = 1.1
"""Done, against the best, that is more."""
ELASTICITY = 0.5
"""Four times as many in flight must get twice as much done, or there is a knee in between."""
LESS = 0.9
"""Done, against the best or what was done before, that is less."""
FORGET = 0.01
"""Part of the best that is forgotten at each tick at which less is done although jobs wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One downstream at one tick, over all classes that lean on it."""

    in_flight: int
    """Units."""
    service: float
    """Mean length of the attempts that ended in the last two ticks, seconds."""
    ended: float | None = None
    """Units a second that those gave back; None when there were too few to say."""
    finished: float = 0.0
    failed: float = 0.0
    waiting: bool = False
    """Whether jobs are ready that only wait for units."""


@dataclass(frozen=True, slots=True)
class Working:
    """The limit to hold to now, and why."""

    limit: int
    reason: Reason
    message: str
    memory: CapacityMemory
    remarks: tuple[Remark, ...] = ()


def working(  # noqa: PLR0911 - one a state
    capacity: CapacitySpec, ceiling: int, sight: Sight | None, memory: CapacityMemory, *, now: float, tick: float
) -> Working:
    """Return the working limit, between adaptive.minUnits and the ceiling. `sight` is None when nothing can be seen."""
    if not capacity.spec.adaptive.enabled:
        return Working(ceiling, Reason.SPEC_LIMIT, f"{ceiling} units", replace(memory, working=None))
    least = min(capacity.spec.adaptive.min_units, ceiling)
    current = min(max(memory.working if memory.working is not None else ceiling, least), ceiling)
    if sight is None:
        return _answer(current, ceiling, replace(memory, working=current))
    done = _done(sight)
    memory = replace(memory, working=current, best=_best(sight, done, memory.best))
    pause = SERVICE_TIMES * sight.service + TICKS * tick
    if memory.lowered_at is not None:
        if memory.lowered_at <= now < memory.lowered_at + pause:
            return _answer(current, ceiling, memory)  # what the last step did is not seen yet
        return _answer(*_judged(current, ceiling, sight, done, memory))
    sign = _failing(capacity, sight) or _no_faster(sight, done, memory.best)
    if sign is None:
        up = min(current + 1, ceiling)
        return _answer(up, ceiling, replace(memory, working=up, grown_at=None))
    since = memory.grown_at if memory.grown_at is not None and memory.grown_at <= now else now
    if now - since < pause:
        return _answer(current, ceiling, replace(memory, grown_at=since))
    lower = max(math.floor(LOWER_TO * min(current, max(sight.in_flight, 1))), least)
    memory = replace(
        memory,
        working=lower,
        grown_at=None,
        sign=sign,
        lowered_at=now,
        lowered_from=current,
        done_before=0.0 if _failing(capacity, sight) else done,
    )
    return _answer(lower, ceiling, memory)


def _done(sight: Sight) -> float:
    """Return the units a second that are got through, by Little's law.

    Where jobs wait, what ended bounds it: after a jump in flight, the lengths are still those of before.
    """
    through = sight.in_flight / max(sight.service, 1e-6)
    return min(through, sight.ended) if sight.waiting and sight.ended is not None else through


def _judged(
    current: int, ceiling: int, sight: Sight, done: float, memory: CapacityMemory
) -> tuple[int, int, CapacityMemory]:
    """Go on from a lowered limit, or take it back where it cost completions."""
    memory = replace(memory, lowered_at=None)
    if not sight.waiting or done >= LESS * memory.done_before:
        return current, ceiling, memory
    back = min(max(memory.lowered_from, current), ceiling)
    best = Best(memory.done_before, float(back))
    return back, ceiling, replace(memory, working=back, best=best)


def _failing(capacity: CapacitySpec, sight: Sight) -> str | None:
    """Return what its owner said must not be, or None."""
    adaptive = capacity.spec.adaptive
    share = sight.failed / sight.finished if sight.finished >= ATTEMPTS_LEAST else 0.0
    if adaptive.error_rate is not None and share > adaptive.error_rate:
        return f"{share:.0%} of attempts fail, above errorRate {adaptive.error_rate:.0%}"
    latency = adaptive.latency.total_seconds() if adaptive.latency is not None else math.inf
    if sight.service > latency:
        return f"attempts take {sight.service:.2g}s, above latency {latency:g}s"
    return None


def _no_faster(sight: Sight, done: float, best: Best | None) -> str | None:
    """Return that fewer in flight got as much done, or None."""
    growth = sight.in_flight / max(best.in_flight, 1.0) if best is not None else 0.0
    if best is None or not sight.waiting or growth < GROWN or done > _expected(growth) * best.done:
        return None
    return (
        f"{sight.in_flight} units in flight get {done:.3g} jobs a second done (attempts take {sight.service:.2g}s), "
        f"and {best.in_flight:.0f} got {best.done:.3g}"
    )


def _expected(growth: float) -> float:
    """Return how many times as much must be done for it to be more, when so many times as many are in flight."""
    return max(MORE, math.pow(growth, ELASTICITY))


def _best(sight: Sight, done: float, best: Best | None) -> Best:
    """Return the most that was done, and the fewest in flight that did nearly as much."""
    if best is None or done > _expected(sight.in_flight / max(best.in_flight, 1.0)) * best.done:
        return Best(done, float(sight.in_flight))
    if done > MORE * best.done:
        return best  # too little more for so many more
    if done >= LESS * best.done:
        return Best(max(done, best.done), min(best.in_flight, float(sight.in_flight)))
    # Less, although jobs wait: others use it, or jobs are longer. That becomes the measure by and by.
    return Best(best.done * (1.0 - FORGET), best.in_flight) if sight.waiting else best


def _answer(limit: int, ceiling: int, memory: CapacityMemory) -> Working:
    if limit >= ceiling:
        return Working(ceiling, Reason.SPEC_LIMIT, f"{ceiling} units", replace(memory, sign=""))
    text = f"{limit} of {ceiling} units: {memory.sign}"
    reason = Reason.SATURATED if memory.lowered_at is not None else Reason.PROBING
    return Working(limit, reason, text, memory, (Remark(Condition.DOWNSTREAM_SATURATED, text),))
