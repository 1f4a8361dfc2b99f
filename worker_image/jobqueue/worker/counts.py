"""Counting in the runner, cheaply: the supervisor is told sums, never single jobs."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, Final

# Upper bounds, in seconds, attempts, and shares of a lease.
WAIT: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
PROCESS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
ATTEMPTS: Final = (1, 2, 3, 5, 10, 25)
LEASE: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


class Histogram:
    """Observations by bucket; `drain` hands them over and starts again."""

    __slots__ = ("bounds", "buckets", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        self.buckets[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add(self, bucket: int, number: int, total: float) -> None:
        """Count observations whose bucket is known."""
        self.buckets[bucket] += number
        self.total += total

    def drain(self) -> list[Any]:
        """Return [buckets, sum] since the last call."""
        told = [self.buckets, self.total]
        self.buckets = [0] * (len(self.bounds) + 1)
        self.total = 0.0
        return told


class Counts:
    """Everything a runner counts."""

    def __init__(self) -> None:
        self.claims = 0
        self.acks: dict[str, int] = {}
        self.released: dict[str, int] = {}
        self.stale = 0
        self.leases_lost = 0
        self.wait = Histogram(WAIT)
        self.attempts = Histogram(ATTEMPTS)
        self.lease_used = Histogram(LEASE)
        self.process: dict[str, Histogram] = {}
        # The common cases, counted without a search: a first attempt, and a lease of which little was used.
        self.firsts = 0
        self.fresh = 0
        self.fresh_total = 0.0

    def processed(self, kind: str) -> Histogram:
        """Return the histogram of a kind's durations."""
        histogram = self.process.get(kind)
        if histogram is None:
            histogram = self.process[kind] = Histogram(PROCESS)
        return histogram

    def acked(self, outcome: str, number: int = 1) -> None:
        """Count acknowledgements by what became of the job."""
        self.acks[outcome] = self.acks.get(outcome, 0) + number

    def gave_back(self, reason: str, number: int) -> None:
        """Count jobs that were given back."""
        self.released[reason] = self.released.get(reason, 0) + number

    def drain(self) -> dict[str, Any]:
        """Return all that was counted since the last call, JSON-able."""
        self.attempts.add(0, self.firsts, float(self.firsts))
        self.lease_used.add(0, self.fresh, self.fresh_total)
        self.firsts = self.fresh = 0
        self.fresh_total = 0.0
        told = {
            "claims": self.claims,
            "acks": self.acks,
            "released": self.released,
            "stale": self.stale,
            "lost": self.leases_lost,
            "wait": self.wait.drain(),
            "attempts": self.attempts.drain(),
            "lease_used": self.lease_used.drain(),
            "process": {kind: histogram.drain() for kind, histogram in self.process.items()},
        }
        self.claims = self.stale = self.leases_lost = 0
        self.acks, self.released = {}, {}
        return told
