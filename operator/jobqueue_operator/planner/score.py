"""What a number of workers cost and what it was good for, over a time."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobqueue_operator.planner.plan import Reason

if TYPE_CHECKING:
    from jobqueue_operator.planner.plan import Decision

AT_CAP = frozenset({Reason.MAXIMUM_REPLICAS, Reason.DOWNSTREAM_CAPACITY})
DIFFERENCES_MOST = 5


@dataclass(slots=True)
class Score:
    """One class under one policy."""

    target: float = 0.0
    """The last target age, in seconds."""
    seconds: float = 0.0
    """Time that was scored."""
    worker_seconds: float = 0.0
    """Of every worker that existed: starting, retired and draining ones too."""
    peak: int = 0
    over_target: float = 0.0
    """Seconds in which the oldest job was older than the target."""
    max_age: float = 0.0
    actions: int = 0
    """Times that the number of wanted workers changed."""
    at_cap: float = 0.0
    """Seconds in which replicas.max or the downstream held the number down."""
    _replicas: int | None = None

    def add(self, seconds: float, *, workers: int, age: float, target: float, decision: Decision | None) -> None:
        """Count a step of this many seconds."""
        self.target = target
        self.seconds += seconds
        self.worker_seconds += seconds * workers
        self.peak = max(self.peak, workers)
        self.max_age = max(self.max_age, age)
        if age > target:
            self.over_target += seconds
        if decision is None:
            return
        if self._replicas is not None and decision.replicas != self._replicas:
            self.actions += 1
        self._replicas = decision.replicas
        if decision.reason in AT_CAP or any(bound.reason in AT_CAP for bound in decision.bounds):
            self.at_cap += seconds

    @property
    def share_over_target(self) -> float:
        """The share of the time in which the oldest job was older than the target."""
        return self.over_target / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    """A time in which one policy had more workers than the other, all along."""

    worker_seconds: float
    """How much more, or less, together; the sign is dropped."""
    begin: float
    """Seconds since the epoch."""
    end: float
    old: int
    """Workers where they differed most."""
    new: int
    old_age: float
    """The oldest age in that time, in seconds."""
    new_age: float


@dataclass(slots=True)
class Differences:
    """The times in which two policies differed most, kept while they go on."""

    _largest: list[Difference] = field(default_factory=list)
    _open: Difference | None = None

    def add(self, now: float, seconds: float, *, workers: tuple[int, int], ages: tuple[float, float]) -> None:
        """Count a step that ended `now`; the old policy's numbers first."""
        gap = workers[1] - workers[0]
        current = self._open
        if current is not None and (current.new - current.old) * gap <= 0:
            self.close()
            current = None
        if gap == 0:
            return
        if current is None:
            self._open = Difference(abs(gap) * seconds, now - seconds, now, *workers, *ages)
            return
        more = abs(gap) > abs(current.new - current.old)
        old, new = workers if more else (current.old, current.new)
        self._open = Difference(
            current.worker_seconds + abs(gap) * seconds,
            current.begin,
            now,
            old,
            new,
            max(current.old_age, ages[0]),
            max(current.new_age, ages[1]),
        )

    def close(self) -> tuple[Difference, ...]:
        """End what is going on; return the largest differences, the largest first."""
        if self._open is not None:
            heapq.heappush(self._largest, self._open)
            if len(self._largest) > DIFFERENCES_MOST:
                heapq.heappop(self._largest)
            self._open = None
        return tuple(sorted(self._largest, reverse=True))
