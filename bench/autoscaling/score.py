"""What a run is judged by. Every figure is exact, from the log of all attempts and pods, not sampled."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from bench.autoscaling.engine import Engine

FLOOR = 0.005
"""Added to the share of time above the target in the score, so that nothing is won by being never late at any cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One run's figures. Seconds, pods, shares from 0 to 1."""

    violation: float
    """Share of the time at which the oldest waiting job was older than the target."""
    excess: float
    """Integral of the oldest age above the target, seconds squared."""
    late: float
    """Share of attempts that waited longer than the target, among those begun or so old."""
    p99_wait: float
    pod_seconds: float
    peak: int
    """Most pods that existed at once."""
    above_cap: float
    """Seconds with more pods than the cap."""
    killed: int
    actions: int
    wake_ups: tuple[float, ...]
    """For each job that became due in an empty fleet and found none before it: seconds until it began."""
    jobs: int

    @property
    def cost(self) -> float:
        """(violation + 0.5 %) x pod-seconds: lower is better."""
        return (self.violation + FLOOR) * self.pod_seconds


def score(engine: Engine) -> Score:
    """Judge a run that has reached its horizon."""
    load, log = engine.load, engine.log
    waiting = np.array(engine.waiting_due())
    due = np.concatenate([np.array(log.due), waiting])
    start = np.concatenate([np.array(log.start), np.full(len(waiting), np.inf)])
    order = np.lexsort((start, due))
    due, start = due[order], np.minimum(start[order], load.horizon)
    wait = start - due
    began = len(log.due)
    judged = began + int((load.horizon - waiting > load.target).sum())
    created = np.array([max(pod.created, 0.0) for pod in engine.pods])
    gone = np.array([min(pod.gone_at, load.horizon) for pod in engine.pods])
    peak, above = _counts(created, gone, load.cap)
    violation, excess = above_target(due, start, load.target)
    return Score(
        violation=violation / load.horizon,
        excess=excess,
        late=float((wait > load.target).sum()) / max(judged, 1),
        p99_wait=float(np.quantile(wait, 0.99)) if len(wait) else 0.0,
        pod_seconds=float((gone - created).sum()),
        peak=peak,
        above_cap=above,
        killed=log.killed,
        actions=log.actions,
        wake_ups=_wake_ups(created, gone, due, start),
        jobs=began,
    )


def above_target(due: npt.NDArray[np.float64], start: npt.NDArray[np.float64], target: float) -> tuple[float, float]:
    """Return for how long the oldest of these waits was above the target, and the integral of what it was above it.

    Sorted by `due`, a wait is the oldest from when all before it have begun until it begins itself.
    """
    if not len(due):
        return 0.0, 0.0
    begun = np.maximum.accumulate(start)
    before = np.concatenate([[-inf], begun[:-1]])
    since = np.maximum(due + target, before)
    lasts = np.maximum(begun - since, 0.0)
    lasts[begun == before] = 0.0
    low, high = since - due - target, begun - due - target
    areas = np.where(lasts > 0, (high**2 - low**2) / 2, 0.0)
    return float(lasts.sum()), float(areas.sum())


def _counts(created: npt.NDArray[np.float64], gone: npt.NDArray[np.float64], cap: int) -> tuple[int, float]:
    """Return the most pods at once, and for how long there were more than `cap`. A pod that goes makes room first."""
    moments = np.concatenate([gone, created])
    steps = np.concatenate([np.full(len(gone), -1), np.full(len(created), 1)])
    order = np.lexsort((steps, moments))
    counts = np.cumsum(steps[order])
    lasts = np.diff(moments[order], append=moments[order][-1])
    return int(counts[lasts > 0].max(initial=0)), float(lasts[counts > cap].sum())


def _wake_ups(
    created: npt.NDArray[np.float64],
    gone: npt.NDArray[np.float64],
    due: npt.NDArray[np.float64],
    start: npt.NDArray[np.float64],
) -> tuple[float, ...]:
    """Return the waits of the first jobs of all spans without a pod."""
    order = np.argsort(created)
    up, last = created[order], np.maximum.accumulate(gone[order])
    found = []
    for empty, until in zip(last[:-1], up[1:], strict=True):
        if until > empty:
            first = int(np.searchsorted(due, empty, side="left"))
            if first < len(due) and due[first] <= until:
                found.append(float(start[first] - due[first]))
    return tuple(found)
