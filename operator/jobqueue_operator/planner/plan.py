"""What should happen next, and why. A plan is carried out by a platform, printed, recorded and replayed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Stable words for why; a message beside each says it with its numbers."""

    MINIMUM_REPLICAS = "MinimumReplicas"
    JOBS_WAITING = "JobsWaiting"
    IDLE = "Idle"
    PAUSED = "Paused"
    NOT_VISIBLE = "QueueNotVisible"
    IDLE_FIRST = "IdleFirst"
    LEAST_ELAPSED = "LeastElapsed"
    NOT_READY_FIRST = "NotReadyFirst"
    REMOVED = "ClassRemoved"
    ROLLING = "RollingOut"
    WAITING_FOR_READY = "WaitingForReady"
    STALLED = "RolloutStalled"


@dataclass(frozen=True, slots=True)
class Decision:
    """How many workers a class gets."""

    replicas: int
    reason: Reason
    message: str
    busy_at: float | None = None
    """When the class last had work, for the next decision; None when it has had none."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A worker that is to be drained."""

    worker: str
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """The next step from an old revision to the wanted one. `replace` is None while nothing may be stopped."""

    replace: Victim | None
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Pool:
    """One class's workers as they should be."""

    class_: str
    revision: str
    decision: Decision
    victims: tuple[Victim, ...] = ()
    rollout: RolloutStep | None = None

    @property
    def why(self) -> str:
        """What is being done and why, as one line."""
        parts = [self.decision.message]
        if self.victims:
            parts.append("draining " + ", ".join(v.worker for v in self.victims))
        if self.rollout is not None:
            parts.append(self.rollout.message)
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Plan:
    """All pools of one tick, in the order of the manifest, then those that are to go."""

    pools: tuple[Pool, ...]

    def pool(self, class_: str) -> Pool | None:
        """Return the pool of a class, or None."""
        return next((p for p in self.pools if p.class_ == class_), None)
