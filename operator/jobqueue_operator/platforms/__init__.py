"""Where workers run. A platform observes its workers and carries out plans; it decides nothing.

Platforms never import each other: what they share is this protocol and the planner's words.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from jobqueue_operator.planner.facts import WorkerFacts
    from jobqueue_operator.planner.plan import Plan


class Happening(StrEnum):
    """What can happen to a worker."""

    STARTED = "started"
    DRAINED = "drained"  # it ended because it was asked to, in time
    KILLED = "killed"  # it was asked to end, and had to be killed when its grace was over
    DIED = "died"  # nobody asked it to
    LOOPING = "looping"  # it died so often that it is not coming up


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to one worker since the last look."""

    happening: Happening
    class_: str
    worker: str
    message: str


class Platform(Protocol):
    """The same four verbs on a laptop and in a cluster."""

    async def observe(self) -> tuple[WorkerFacts, ...]:
        """Return every worker that exists, those that are draining or waiting to be started again included."""

    async def apply(self, plan: Plan) -> None:
        """Take the next steps towards the plan and return without waiting for them. Repeating a plan is harmless."""

    def events(self) -> list[Event]:
        """Return what happened since the last call, oldest first; a bounded number."""

    async def close(self) -> None:
        """Drain every worker and return when none is left."""
