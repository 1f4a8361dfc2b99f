"""What a queue's tables need now and then, whoever operates it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobqueue_operator.queues.queue import Queue

MAINTAIN_EVERY = 600.0
"""Seconds between two maintenance runs."""


class Upkeep:
    """Sweeps each time, and runs maintenance too when that is due. It remembers when it last was."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._maintained_at: float | None = None

    async def run(self, now: float) -> None:
        """Do what is due; `now` in seconds on a monotonic clock. Raises JobQueueError."""
        maintain = self._maintained_at is None or now - self._maintained_at > MAINTAIN_EVERY
        if maintain:
            self._maintained_at = now
        await self._queue.upkeep(maintain=maintain)
