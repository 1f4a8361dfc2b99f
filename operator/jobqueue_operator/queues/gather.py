"""The first step of a tick: what the queue and the platform know, as facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobqueue.errors import JobQueueError
from jobqueue_operator import observe

if TYPE_CHECKING:
    from jobqueue.signals import Snapshot
    from jobqueue_operator.planner.facts import Facts
    from jobqueue_operator.platforms import Carrier
    from jobqueue_operator.queues.queue import Queue
    from jobqueue_operator.queues.saying import Says


class LeadershipLost(Exception):  # noqa: N818 - reads as a fact
    """Another operator leads the database. The message says who."""


@dataclass(frozen=True, slots=True)
class Sight:
    """One look: the facts, and the snapshot that they are from. It is None when the queue could not be read."""

    facts: Facts
    snapshot: Snapshot | None


class Gatherer:
    """Looks at the queue and at the platform. It remembers only whether the last look was blind."""

    def __init__(self, queue: Queue, platform: Carrier, reporter: Says, *, tick: float) -> None:
        self._queue = queue
        self._platform = platform
        self._reporter = reporter
        self._tick = tick
        self._blind = False

    async def look(self) -> Sight:
        """Return what there is."""
        snapshot = await self._read()
        return Sight(observe.facts(snapshot, await self._platform.observe()), snapshot)

    async def _read(self) -> Snapshot | None:
        try:
            snapshot = await self._queue.snapshot(tick=self._tick)
        except JobQueueError as error:
            if not self._blind:
                self._reporter.say("error", f"the queue cannot be read; the workers stay as they are: {error}")
            self._blind = True
            return None
        if self._blind:
            self._reporter.say("info", "the queue can be read again")
            self._blind = False
        return snapshot


def check_lead(epoch: int | None, snapshot: Snapshot | None) -> None:
    """Raise LeadershipLost when the database is led under another epoch than ours."""
    if epoch is not None and snapshot is not None and snapshot.database.epoch != epoch:
        raise LeadershipLost(
            f"{snapshot.database.leader} leads it with epoch {snapshot.database.epoch}, ours is {epoch}"
        )
