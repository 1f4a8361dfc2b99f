"""Knative's pod autoscaler (KPA) on concurrency.

From knative.dev/docs/serving/autoscaling and serving's pkg/autoscaler/scaling/autoscaler.go: desired = ceil(mean
concurrency / (target utilisation x container concurrency)), over a stable window (60 s) and a panic window (6 s). When
the panic window asks for at least twice (200 %) the ready pods it panics: takes the larger of both and never goes down,
until one stable window has passed since it was last above. Rates per tick (2 s): at most x 1000 up, at most to a half
down. To zero after a stable window without concurrency and a grace period (30 s); from zero at once, told by the
activator. Jobs that wait count as concurrency, as requests in the activator do.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import ceil, floor, inf
from typing import TYPE_CHECKING

from bench.autoscaling.policies.policy import Deployment, view

if TYPE_CHECKING:
    from bench.autoscaling.engine import Engine

TICK = 2.0
MAX_SCALE_UP, MAX_SCALE_DOWN = 1000.0, 2.0
ZERO_GRACE = 30.0
ACTIVATED_AFTER = 0.1


@dataclass(slots=True)
class Decider:
    """The arithmetic and what it remembers. `target`: concurrency wanted for each pod."""

    target: float
    stable_window: float = 60.0
    panic_window: float = 6.0
    panic_threshold: float = 2.0
    _samples: deque[tuple[float, float]] = field(default_factory=deque)
    _panicked_at: float | None = None
    _panic_pods: int = 0

    def desired(self, now: float, concurrency: float, ready: int) -> int:
        """Return how many pods this concurrency asks for."""
        self._samples.append((now, concurrency))
        while self._samples[0][0] <= now - self.stable_window:
            self._samples.popleft()
        pods = max(ready, 1)
        stable = ceil(self._mean(now, self.stable_window) / self.target)
        panic = ceil(self._mean(now, self.panic_window) / self.target)
        most, least = ceil(MAX_SCALE_UP * pods), floor(pods / MAX_SCALE_DOWN)
        over = panic / pods >= self.panic_threshold
        stable, panic = (min(max(n, least), most) for n in (stable, panic))
        if over:
            if self._panicked_at is None:
                self._panic_pods = 0
            self._panicked_at = now
        elif self._panicked_at is not None and self._panicked_at + self.stable_window < now:
            self._panicked_at = None
        if self._panicked_at is None:
            return stable
        self._panic_pods = max(self._panic_pods, stable, panic)
        return self._panic_pods

    def _mean(self, now: float, window: float) -> float:
        values = [value for at, value in self._samples if at > now - window]
        return sum(values) / len(values)

    def idle(self) -> bool:
        """Whether nothing was seen in the whole stable window."""
        return not any(value for _, value in self._samples)


@dataclass(slots=True)
class Kpa:
    """The autoscaler with its Deployment."""

    decider: Decider
    most: int
    deployment: Deployment = field(default_factory=Deployment)
    period: float = TICK
    _idle_since: float | None = None

    def act(self, engine: Engine) -> None:
        """Decide once."""
        seen = view(engine)
        wanted = self.decider.desired(seen.now, seen.waiting + seen.running, seen.ready)
        if self.decider.idle():
            self._idle_since = seen.now if self._idle_since is None else self._idle_since
            wanted = 0 if seen.now - self._idle_since >= ZERO_GRACE else max(wanted, min(seen.replicas, 1))
        else:
            self._idle_since = None
            wanted = max(wanted, 1)
        self.deployment.scale(engine, min(wanted, self.most))

    def woken_after(self, engine: Engine) -> float:
        """By the activator, while there is no pod."""
        return ACTIVATED_AFTER if all(pod.ending for pod in engine.alive) else inf
