"""A class's jobs as a fluid: what a queue would have done with another number of workers.

Jobs arrive evenly over each step and run for the same mean time S on a number of slots c, first come, first served:

    dJ/dt = a - min(J, c) / S        for J jobs that wait or run, and a arrivals a second

which is solved exactly, piece by piece. What a fluid cannot show is chance: jobs that wait because others happened to
come at the same moment. Its waits are those of too few slots.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

COHORTS_MOST = 64
"""Groups of waiting jobs told apart; beyond, neighbours are joined."""
QUANTILES = 8
LEAST = 1e-9
"""Fewer jobs than this are none."""


@dataclass(slots=True)
class _Cohort:
    """Waiting jobs that became due evenly between two moments."""

    begin: float
    end: float
    jobs: float


@dataclass(slots=True)
class FluidQueue:
    """The jobs of one class. Times are seconds on a clock that only goes forward."""

    running: float = 0.0
    waiting: float = 0.0
    """Jobs that are due and do not run."""
    _cohorts: deque[_Cohort] = field(default_factory=deque)
    _ages: tuple[float, tuple[float, ...]] | None = None

    def restart(self, now: float, *, waiting: float, running: float, ages: Sequence[float]) -> None:
        """Take over a queue that was seen: `ages` at the quantiles 0, 1/8 … 7/8 of what waits, oldest first."""
        self.running, self.waiting, self._ages = running, max(waiting, 0.0), None
        self._cohorts.clear()
        if waiting <= 0:
            return
        known = sorted((max(age, 0.0) for age in ages), reverse=True) or [0.0]
        for older, younger in zip(known, [*known[1:], 0.0], strict=True):
            self._cohorts.append(_Cohort(now - older, now - younger, waiting / len(known)))

    def advance(self, now: float, seconds: float, *, arrivals: float, slots: float, service: float) -> None:
        """Go on for `seconds`, up to `now`: so many jobs arrive, so many slots work, each job for `service` seconds."""
        if seconds <= 0:
            return
        waited, service = self.waiting, max(service, 1e-4)
        over = max(self.running - slots, 0.0)  # what ran before there were fewer slots ends in its own time
        jobs = _after(waited + self.running - over, seconds, arrivals / seconds, slots, service)
        waits = max(jobs - slots, 0.0)
        self.running = jobs - waits + over * math.exp(-seconds / service)
        if arrivals > 0:
            self._cohorts.append(_Cohort(now - seconds, now, arrivals))
        self._start(waited + arrivals - waits)
        self.waiting, self._ages = waits, None
        if waits <= LEAST:
            self.waiting = 0.0
            self._cohorts.clear()
        elif len(self._cohorts) > COHORTS_MOST:
            self._join()

    def ages(self, now: float) -> tuple[float, ...]:
        """Return the ages at eight quantiles of what waits, oldest first; nothing when nothing waits."""
        if self._ages is None or self._ages[0] != now:
            self._ages = (now, self._quantiles(now))
        return self._ages[1]

    def _quantiles(self, now: float) -> tuple[float, ...]:
        found: list[float] = []
        step = self.waiting / QUANTILES
        wanted, before = 0.0, 0.0
        for cohort in self._cohorts:
            after = before + cohort.jobs
            while wanted < after and len(found) < QUANTILES:
                share = (wanted - before) / cohort.jobs
                found.append(max(now - cohort.begin - share * (cohort.end - cohort.begin), 0.0))
                wanted += step
            if len(found) == QUANTILES:
                break
            before = after
        return tuple(found + [0.0] * (QUANTILES - len(found))) if found else ()

    def _start(self, jobs: float) -> None:
        """Take the oldest jobs off the queue."""
        while jobs > 0 and self._cohorts:
            oldest = self._cohorts[0]
            if oldest.jobs <= jobs:
                jobs -= oldest.jobs
                self._cohorts.popleft()
                continue
            oldest.begin += (oldest.end - oldest.begin) * jobs / oldest.jobs
            oldest.jobs -= jobs
            return

    def _join(self) -> None:
        pairs = list(self._cohorts)
        self._cohorts = deque(
            _Cohort(a.begin, b.end, a.jobs + b.jobs) for a, b in zip(pairs[::2], pairs[1::2], strict=False)
        )
        if len(pairs) % 2:
            self._cohorts.append(pairs[-1])


def _after(jobs: float, seconds: float, rate: float, slots: float, service: float) -> float:
    """Return the jobs there are after a time, by the equation above."""
    left = seconds
    for _ in range(3):  # above the slots, below them, and no more than once across in each direction
        if jobs > slots or (jobs == slots and rate * service > slots):
            slope = rate - slots / service
            spent = left if slope >= 0 else min(left, (jobs - slots) / -slope)
            jobs = max(jobs + slope * spent, slots)
        else:
            rest = rate * service  # where it would settle
            spent = left
            if rest > slots:
                spent = min(left, service * math.log((rest - jobs) / (rest - slots)))
            jobs = slots if rest > slots and spent < left else rest + (jobs - rest) * math.exp(-spent / service)
        left -= spent
        if left <= 0:
            break
    return max(jobs, 0.0)
