"""The HorizontalPodAutoscaler v2 of Kubernetes on one external metric.

From kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale ("Algorithm details", "Configurable scaling
behavior") and pkg/controller/podautoscaler: ratio = usage / target, no change while it is within 1 +- 0.1; AverageValue
desires ceil(usage / target), with ratio = usage / (target x replicas); Value desires ceil(ratio x ready pods). Desired
numbers of the last 300 s hold up the way down; the way up is held to the larger of +4 pods and +100 % in 15 s. Synced
every 15 s.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import ceil, inf
from typing import TYPE_CHECKING

from bench.autoscaling.policies.policy import Deployment, View, view

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.autoscaling.engine import Engine

TOLERANCE = 0.1
SYNC = 15.0
UP_PODS, UP_PERCENT, UP_PERIOD = 4, 100, 15.0
DOWN_WINDOW = 300.0


def average_value(usage: float, target: float, replicas: int) -> int:
    """Pods wanted by a metric that is shared among them."""
    if replicas and abs(usage / (target * replicas) - 1) <= TOLERANCE:
        return replicas
    return ceil(usage / target)


def value(usage: float, target: float, ready: int, replicas: int) -> int:
    """Pods wanted by a metric that is compared as it is."""
    ratio = usage / target
    if abs(ratio - 1) <= TOLERANCE:
        return replicas
    return ceil(ratio * ready)


@dataclass(slots=True)
class Behavior:
    """The default behavior: what is desired, held back."""

    least: int
    most: int
    down_window: float = DOWN_WINDOW
    _desired: deque[tuple[float, int]] = field(default_factory=deque)
    _ups: deque[tuple[float, int]] = field(default_factory=deque)

    def normalized(self, now: float, replicas: int, desired: int) -> int:
        """Return how many pods there shall be, given how many there are."""
        self._desired.append((now, desired))
        while self._desired[0][0] < now - self.down_window:
            self._desired.popleft()
        if desired < replicas:
            desired = min(max(d for _, d in self._desired), replicas)
        while self._ups and self._ups[0][0] <= now - UP_PERIOD:
            self._ups.popleft()
        began = replicas - sum(added for _, added in self._ups)
        limit = max(began + UP_PODS, ceil(began * (1 + UP_PERCENT / 100)))
        wanted = min(max(desired, self.least), max(min(limit, self.most), self.least))
        if wanted > replicas:
            self._ups.append((now, wanted - replicas))
        return wanted


def by_depth(target: float) -> Callable[[View], int]:
    """Jobs waiting and running, `target` of them a pod (AverageValue)."""
    return lambda seen: average_value(seen.waiting + seen.running, target, seen.replicas)


def by_backlog(target: float) -> Callable[[View], int]:
    """Jobs waiting, `target` of them a pod (AverageValue); what runs does not count."""
    return lambda seen: average_value(seen.waiting, target, seen.replicas)


def by_age(target: float) -> Callable[[View], int]:
    """Compare the oldest age with `target` seconds (Value)."""
    return lambda seen: value(seen.oldest_age, target, seen.ready, seen.replicas)


@dataclass(slots=True)
class Hpa:
    """One HPA on one Deployment, which it cannot bring to zero."""

    desire: Callable[[View], int]
    behavior: Behavior
    deployment: Deployment = field(default_factory=Deployment)
    period: float = SYNC

    def act(self, engine: Engine) -> None:
        """Sync once."""
        seen = view(engine)
        wanted = self.behavior.normalized(seen.now, seen.replicas, self.desire(seen))
        self.deployment.scale(engine, wanted)

    def woken_after(self, engine: Engine) -> float:  # noqa: ARG002 - what a policy is asked
        """Never."""
        return inf
