"""What another spec would have done with recorded facts.

The recorded and the new spec are both carried through the same model (`planner.modelled`), so that the model's errors
are on both sides; what was recorded stands beside them for reference. One tick is held at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from jobqueue_operator.planner.course import Course, sound
from jobqueue_operator.planner.modelled import REVISION, Load, Policy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jobqueue_operator.planner.record import Tick
    from jobqueue_operator.planner.score import Difference, Score
    from jobqueue_operator.planner.wanted import Wanted

GAP_TICKS = 3.0
GAP_LEAST = 15.0
"""Ticks, and seconds, without a look beyond which what came meanwhile is not known: the larger of the two."""
REMARKS_MOST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One class: the recorded spec and the new one on the same model, and what was recorded."""

    class_: str
    old: Score
    new: Score
    recorded: Score
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a replay found. Moments are seconds since the epoch."""

    begin: float
    end: float
    ticks: int
    left_out: float
    """Seconds of gaps: nobody looked, so what came then is not known."""
    gaps: int
    classes: tuple[Comparison, ...]
    remarks: tuple[str, ...]


class Replay:
    """Feed it the ticks in the order in which they were recorded, then ask for the outcome."""

    def __init__(self, new: Wanted) -> None:
        self._new = _one_revision(new)
        self._keys = {pool.key for pool in new.pools}
        self._policies = (Policy(), Policy())
        self._courses: dict[str, Course] = {}
        self._began: float | None = None
        self._last: float | None = None
        self._clock = 0.0
        self._ticks = 0
        self._gaps = 0
        self._left_out = 0.0
        self._remarks: list[str] = []
        self._old_of: tuple[Wanted, Wanted] | None = None

    def feed(self, tick: Tick) -> None:
        """Carry both policies through one tick."""
        self._ticks += 1
        if self._began is None:
            self._began = tick.now
            for policy in self._policies:
                policy.begin(tick.previous)
        passed = self._passed(tick)
        self._clock += passed
        old = self._old(tick.wanted)
        loads = self._loads(tick, old, passed)
        for policy in self._policies:
            policy.advance(self._clock, loads)
        self._score(tick, loads)
        for policy, wanted in zip(self._policies, (old, self._new), strict=True):
            policy.decide(wanted, tick.facts, loads, clock=self._clock, now=tick.now, tick=tick.tick)

    def outcome(self) -> Outcome:
        """Return what was found so far."""
        keys = self._keys
        remarks = list(self._remarks)
        remarks += [f"class {key} is not in the new spec: its workers would end" for key in self._courses.keys() - keys]
        remarks += [
            f"class {key} was not recorded: nothing is known of its load" for key in keys - self._courses.keys()
        ]
        remarks += [
            f"class {key}: its arrivals were not counted; as many are taken as wait or run more, which is too few"
            for key, course in self._courses.items()
            if course.uncounted
        ]
        old, new = self._policies
        return Outcome(
            begin=self._began or 0.0,
            end=self._last or 0.0,
            ticks=self._ticks,
            left_out=self._left_out,
            gaps=self._gaps,
            classes=tuple(
                Comparison(
                    class_=key,
                    old=old.pools[key].score,
                    new=new.pools[key].score,
                    recorded=course.recorded,
                    differences=course.differences.close(),
                )
                for key, course in self._courses.items()
            ),
            remarks=tuple(sorted(remarks)),
        )

    def _passed(self, tick: Tick) -> float:
        """Return the seconds since the last tick, by the recorded clock as far as it can be true."""
        last, self._last = self._last, tick.now
        if last is None:
            return 0.0
        passed = tick.now - last
        if passed < 0:
            self._say(f"the clock went back by {-passed:.1f}s at {_at(tick.now)}: taken for one tick")
            return min(max(tick.tick, 0.0), GAP_LEAST)
        if passed > gap(tick):
            self._gaps += 1
            self._left_out += passed
            self._say(f"nothing was recorded for {passed:.0f}s before {_at(tick.now)}: left out")
        return passed

    def _loads(self, tick: Tick, old: Wanted, passed: float) -> dict[str, Load]:
        """Return what each class met since it was last seen; a class that was not seen, or not soundly, is left out."""
        found = {}
        for pool in old.pools if tick.facts.visible else ():
            seen = tick.facts.classes.get(pool.key)
            if seen is None:
                continue
            if not sound(seen):
                self._say(f"class {pool.key}: the facts at {_at(tick.now)} cannot be true: left out")
                continue
            workers = [w for w in tick.facts.workers if w.class_ == pool.key]
            if pool.key not in self._courses:
                self._courses[pool.key] = Course(seen_at=self._clock)
                for policy in self._policies:
                    policy.begin_class(pool.key, self._clock, len(workers))
            course = self._courses[pool.key]
            unseen = self._clock - course.seen_at
            if passed <= gap(tick) < unseen:
                self._say(f"class {pool.key} was not seen for {unseen:.0f}s before {_at(tick.now)}: left out")
            decided = tick.plan.pool(pool.key)
            found[pool.key] = course.step(
                seen, workers, decided.decision if decided is not None else None, self._clock, gap(tick)
            )
        return found

    def _score(self, tick: Tick, loads: dict[str, Load]) -> None:
        for key, load in loads.items():
            if load.seconds is None:
                continue
            course = self._courses[key]
            (old, old_age), (new, new_age) = [p.score(key, self._clock, load.seconds) for p in self._policies]
            if key in self._keys:
                course.differences.add(tick.now, load.seconds, workers=(old, new), ages=(old_age, new_age))
            course.score(load, self._policies[0].pools[key].score.target)

    def _old(self, wanted: Wanted) -> Wanted:
        if self._old_of is None or self._old_of[0] is not wanted:
            self._old_of = (wanted, _one_revision(wanted))
        return self._old_of[1]

    def _say(self, text: str) -> None:
        if len(self._remarks) < REMARKS_MOST:
            self._remarks.append(text)


def replay(ticks: Iterable[Tick], new: Wanted) -> Outcome:
    """Carry the recorded spec and a new one through recorded ticks."""
    course = Replay(new)
    for tick in ticks:
        course.feed(tick)
    return course.outcome()


def _one_revision(wanted: Wanted) -> Wanted:
    return replace(wanted, pools=tuple(replace(pool, revision=REVISION) for pool in wanted.pools))


def gap(tick: Tick) -> float:
    """Return the seconds after a tick beyond which nobody knows what was meanwhile."""
    return max(GAP_TICKS * tick.tick, GAP_LEAST) if math.isfinite(tick.tick) else GAP_LEAST


def _at(now: float) -> str:
    try:
        return f"{datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return str(now)
