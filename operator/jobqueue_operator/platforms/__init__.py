"""Where workers run. A platform observes its workers and carries out plans; it decides nothing.

Platforms never import each other: what they share is this protocol and the planner's words.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobqueue_operator.planner.facts import WorkerFacts
    from jobqueue_operator.planner.plan import Plan


class Happening(StrEnum):
    """What can happen to a worker."""

    STARTED = "started"
    DRAINED = "drained"  # it ended because it was asked to, in time
    KILLED = "killed"  # it was asked to end, and had to be killed when its grace was over
    DIED = "died"  # nobody asked it to; it is started again
    GONE = "gone"  # nobody asked it to, and it was retired: nobody misses it
    LOOPING = "looping"  # it died so often that it is not coming up


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to one worker since the last look."""

    happening: Happening
    class_: str
    worker: str
    message: str


class Carrier(Protocol):
    """What carries a plan out: the same two verbs on a laptop and in a cluster."""

    async def observe(self) -> tuple[WorkerFacts, ...]:
        """Return every worker that exists, those that are draining or waiting to be started again included."""

    async def apply(self, plan: Plan, workers: Sequence[WorkerFacts] = ()) -> None:
        """Take the next steps towards the plan and return without waiting for them. Repeating a plan is harmless.

        `workers` are those of `observe` with the phases that the queue knows, after the plan's `retire` and `take_back`
        were written there; empty when the queue cannot be read, and then what was known of them holds.

        * Workers named by `stop` or by the rollout's `replace` are drained. Nothing else ends a worker.
        * As many are started as the pool's `replicas` exceeds the workers of the class that exist and are not retired.
          A retired one never counts, from its fence to its end, drain included: the plan asks for `replicas` beside it,
          and has charged it where units are shared. One that is stopped without having been retired (replaced by a
          rollout, or never ready) counts until it is gone: one out, one in.
        * Those that the pool keeps `beside` the others do not count either, and none of the kept is ended.
        * A worker that dies keeps its place and is started again, with pauses when it dies early; a retired one is not.
        """


class Platform(Carrier, Protocol):
    """One whose workers are ours to end, and to tell of."""

    def events(self) -> list[Event]:
        """Return what happened since the last call, oldest first; a bounded number."""

    async def close(self) -> None:
        """Drain every worker and return when none is left."""
