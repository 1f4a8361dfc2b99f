"""What the planner must know after a restart is kept in the queue's database, and read from there at the start."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from jobqueue_operator.planner import priors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jobqueue.signals import Snapshot
    from jobqueue_operator.planner.plan import Plan
    from jobqueue_operator.queues.queue import Queue

EVERY = 15.0
"""Seconds between two writes of one class at least."""
NOTABLE = 0.1
"""A number is written again when it has changed by more than this share of itself."""


class Memories:
    """Reads and writes the memories of classes. It remembers what it wrote last, and when."""

    def __init__(self, queue: Queue, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._queue = queue
        self._clock = clock
        self._kept: dict[str, Mapping[str, float]] = {}
        self._written_at: dict[str, float] = {}

    def restore(self, snapshot: Snapshot) -> Plan:
        """Return the plan to begin with."""
        return priors.restore({seen.class_: seen.memory for seen in snapshot.classes})

    async def keep(self, plan: Plan, *, last: bool = False) -> None:
        """Write what has changed notably, whenever it was last written when this is the `last` time.

        Raises JobQueueError when the queue does not answer; it is tried again later.
        """
        for pool in plan.pools:
            memory, now = priors.stored(pool.memory), self._clock()
            due = last or now - self._written_at.get(pool.class_, float("-inf")) >= EVERY
            if pool.revision and memory and due and _notable(self._kept.get(pool.class_, {}), memory):
                self._written_at[pool.class_] = now
                await self._queue.remember(pool.class_, memory)
                self._kept[pool.class_] = memory


def _notable(before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    if before.keys() != after.keys():
        return True
    return any(abs(after[name] - before[name]) > NOTABLE * before[name] for name in after)
