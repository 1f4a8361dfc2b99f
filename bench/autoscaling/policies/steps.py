"""Step scaling on latency, as an EC2 Auto Scaling group does it.

From docs.aws.amazon.com/autoscaling/ec2/userguide/as-scaling-simple-step.html (the page's own example, adjustment type
PercentChangeInCapacity): with an alarm at 50, a metric from 60 adds 10 % and one from 70 adds 30 %; one at 40 or below
takes away 10 %, at 30 or below 30 %. Changes between 0 and 1 are rounded to 1, others towards zero. Capacity that is
still warming up does not count when adding, and is not added twice. Here the metric is the oldest age as a percentage
of the target, its highest within an alarm period of 60 s; the alarm's threshold and the width of its steps are
parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, trunc
from typing import TYPE_CHECKING

from bench.autoscaling.policies.policy import Deployment, view

if TYPE_CHECKING:
    from bench.autoscaling.engine import Engine

ALARM_PERIOD = 60.0


def change(metric: float, threshold: float, width: float = 10.0) -> float:
    """Return the change in percent for a metric, by the steps above."""
    above = metric - threshold
    if above >= 2 * width:
        return 30.0
    if above >= width:
        return 10.0
    if above <= -2 * width:
        return -30.0
    return -10.0 if above <= -width else 0.0


def adjusted(capacity: int, percent: float) -> int:
    """Return the capacity after a change."""
    by = capacity * percent / 100
    if by == 0:
        return capacity
    return capacity + (trunc(by) if abs(by) >= 1 else (1 if by > 0 else -1))


@dataclass(slots=True)
class Steps:
    """One group with its two step policies."""

    target: float
    most: int
    threshold: float = 50.0
    width: float = 10.0
    alarm: float = ALARM_PERIOD
    deployment: Deployment = field(default_factory=Deployment)
    period: float = 5.0
    _highest: float = 0.0
    _judged_at: float = 0.0

    def act(self, engine: Engine) -> None:
        """Measure, and adjust at the end of each alarm period."""
        seen = view(engine)
        self._highest = max(self._highest, 100 * seen.oldest_age / self.target)
        if seen.now - self._judged_at < self.alarm:
            return
        percent = change(self._highest, self.threshold, self.width)
        self._highest, self._judged_at = 0.0, seen.now
        if percent > 0:
            wanted = max(adjusted(max(seen.ready, 1), percent), seen.replicas)
        else:
            wanted = adjusted(seen.replicas, percent)
        self.deployment.scale(engine, min(max(wanted, 1), self.most))

    def woken_after(self, engine: Engine) -> float:  # noqa: ARG002 - what a policy is asked
        """Never: its least is one pod."""
        return inf
