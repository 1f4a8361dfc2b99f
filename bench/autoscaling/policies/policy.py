"""What a policy is to the run, and what the others than the planner see and ask for."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bench.autoscaling.engine import Engine


class Policy(Protocol):
    """Decides every `period` seconds; a new one is made for every run."""

    period: float

    def act(self, engine: Engine) -> None:
        """Look at the engine and change its pods."""

    def woken_after(self, engine: Engine) -> float:
        """Seconds after a job becomes due in an empty fleet until it decides out of turn; infinite when it does not."""


@dataclass(frozen=True, slots=True)
class View:
    """What an autoscaler outside the queue can measure."""

    now: float
    waiting: int
    running: int
    oldest_age: float
    replicas: int
    """Pods asked for: those that are not ending."""
    ready: int


def view(engine: Engine) -> View:
    """Measure."""
    staying = [pod for pod in engine.alive if not pod.ending]
    oldest = engine.oldest_due
    return View(
        now=engine.now,
        waiting=engine.waiting,
        running=engine.in_flight,
        oldest_age=engine.now - oldest if oldest < inf else 0.0,
        replicas=len(staying),
        ready=sum(pod.ready_at <= engine.now for pod in staying),
    )


@dataclass(slots=True)
class Deployment:
    """A Kubernetes Deployment: pods at once when there are too few; when there are too many, not ready and young first.

    Pods that end do not count. `grace`: seconds that a pod has for what it holds (terminationGracePeriodSeconds).
    """

    grace: float = 30.0

    def scale(self, engine: Engine, replicas: int) -> None:
        """Bring the pods to this number."""
        staying = [pod for pod in engine.alive if not pod.ending]
        missing = replicas - len(staying)
        if missing:
            engine.log.actions += 1
        for _ in range(missing):
            engine.create()
        if missing < 0:
            staying.sort(key=lambda pod: (pod.ready_at <= engine.now, -pod.created, -pod.number))
            for pod in staying[:-missing]:
                engine.end(pod, self.grace)
