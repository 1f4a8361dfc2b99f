"""What a run is given: jobs with their moments and lengths, what goes wrong, and the promise that is judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


class Kind(StrEnum):
    """Which bound on the cost a workload is judged by."""

    SMOOTH = "smooth"
    HEAVY = "heavy tail"
    BURST = "bursts, batches"
    IDLE = "idle gaps"
    FAULT = "faults"
    OVERLOAD = "overload"
    SPARSE = "sparse"


@dataclass(frozen=True, slots=True)
class Slowdown:
    """A downstream that serves `knee` jobs at once at full speed, and whose jobs take longer in proportion above."""

    knee: int

    def factor(self, concurrent: int) -> float:
        """How much longer a job takes that starts as one of `concurrent`."""
        return max(1.0, concurrent / self.knee)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One workload, drawn. Times and lengths in seconds from the start of the run."""

    name: str
    kind: Kind
    due: Floats
    """When each job becomes due, ascending."""
    service: Floats
    """How long each attempt of a job runs on a downstream at full speed."""
    failures: npt.NDArray[np.int64] | None = None
    """How many attempts of each job fail before one succeeds; None: none does."""
    jitter: Floats = field(default_factory=lambda: np.full(1, 0.5))
    """Random parts, 0 to 1, of the backoffs and of the leases that a killed worker leaves."""
    known_ahead: float = 0.0
    """Seconds before its moment that a scheduled job is in the queue."""
    scheduled: Floats = field(default_factory=lambda: np.empty(0))
    """The moments of those that were enqueued `known_ahead`, ascending; they are in `due` too."""
    kills: tuple[float, ...] = ()
    """When a worker dies without a word."""
    slowdown: Slowdown | None = None
    horizon: float = 3600.0
    """Length of the run: what is measured is measured from 0 to here."""
    target: float = 60.0
    """T: no job should wait longer than this."""
    slots: int = 4
    """c: jobs a pod runs at once."""
    cap: int = 40
    """Pods that the downstream allows, whatever their state."""
    first: int = 1
    """Pods that are up at 0, whoever decides."""
    lease: float = 60.0
    backoff: tuple[float, float, float] = (2.0, 2.0, 600.0)
    """Longest wait before the second attempt, its growth per attempt, and the longest of all."""

    def wait_before(self, attempt: int, job: int) -> float:
        """How long a job waits after its failed attempt number `attempt` (from 1)."""
        initial, factor, longest = self.backoff
        part = float(self.jitter[(job + attempt) % len(self.jitter)])
        return part * min(initial * factor ** (attempt - 1), longest)


@dataclass(frozen=True, slots=True)
class StartDelay:
    """Seconds from a pod's creation until it takes jobs: always `typical`, or lognormal around it as its median."""

    typical: float
    sigma: float = 0.0
    seed: int = 0

    def of(self, pod: int) -> float:
        """Return the delay of the pod with this number, the same in every run."""
        if self.sigma == 0:
            return self.typical
        draw = np.random.default_rng((self.seed, pod)).standard_normal()
        return float(self.typical * np.exp(self.sigma * draw))
