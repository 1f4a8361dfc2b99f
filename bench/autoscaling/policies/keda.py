"""KEDA's ScaledObject on one queue scaler.

From keda.sh/docs (concepts: scaling deployments; reference: ScaledObject): the operator polls every 30 s; a metric
above the activation value (0) brings a Deployment from 0 to 1; with none for the cooldown (300 s) it goes back to 0.
Between 1 and the maximum the HPA decides, on the metric as AverageValue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from bench.autoscaling.policies.hpa import SYNC, Behavior, average_value
from bench.autoscaling.policies.policy import Deployment, view

if TYPE_CHECKING:
    from bench.autoscaling.engine import Engine

POLL = 30.0
COOLDOWN = 300.0


@dataclass(slots=True)
class Keda:
    """One ScaledObject. `target`: jobs, waiting or running, for each pod."""

    target: float
    behavior: Behavior
    cooldown: float = COOLDOWN
    deployment: Deployment = field(default_factory=Deployment)
    period: float = SYNC
    _polled_at: float = -inf
    _active_at: float = 0.0

    def act(self, engine: Engine) -> None:
        """Poll when it is time, and let the HPA sync when there is a pod."""
        seen = view(engine)
        metric = seen.waiting + seen.running
        replicas = seen.replicas
        if seen.now - self._polled_at >= POLL:
            self._polled_at = seen.now
            if metric > 0:
                self._active_at = seen.now
                replicas = max(replicas, 1)
            elif seen.now - self._active_at >= self.cooldown:
                replicas = 0
        if replicas and seen.replicas:
            desired = average_value(metric, self.target, replicas)
            replicas = self.behavior.normalized(seen.now, replicas, desired)
        self.deployment.scale(engine, replicas)

    def woken_after(self, engine: Engine) -> float:  # noqa: ARG002 - what a policy is asked
        """Never: it polls."""
        return inf
