"""Wake from zero: jobs of a class without workers are heard of by LISTEN, and by looking often underneath."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from jobqueue.errors import JobQueueError
from jobqueue.wakeup.notify import NotifyWakeup

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jobqueue.wakeup.notify import Opener, Patience
    from jobqueue_operator.planner.plan import Plan
    from jobqueue_operator.planner.wanted import PoolSpec, Wanted
    from jobqueue_operator.queues.gather import Sight
    from jobqueue_operator.queues.queue import Queue

LOOKS = 4
"""A class at zero is looked at this many times within its target at least, however deaf the listener is."""
LEAST = 0.1
"""Seconds between two looks at least, whatever rings."""


class Doorbell(NotifyWakeup):
    """Rings for jobs of the classes at zero. A listener that is cut off connects again, with growing pauses."""

    def __init__(self, connect: Opener, *, schema: str, patience: Patience | None = None) -> None:
        super().__init__(connect, classes=(), schema=schema, patience=patience)

    def listen_for(self, classes: Iterable[str]) -> None:
        """Ring for these classes alone: the workers of others are notified too, and look for themselves."""
        self._classes = frozenset(classes)

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109 - a bound on sleeping, not on an operation
        """Return when it rings, or after `timeout` seconds: exactly, as nobody else ticks in step with us."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._bell.wait()
        self._bell.clear()


class Waker:
    """Keeps the operator's waiter flag in the queue: set for each class at zero with nothing to do, for no other.

    Producers notify whoever has set one, and a NOTIFY serialises their commits: hence only where it is of use.
    """

    def __init__(self, queue: Queue, bell: Doorbell) -> None:
        self._queue = queue
        self._bell = bell
        self._flags: dict[str, bool] = {}
        self._look_within = float("inf")

    async def start(self) -> None:
        """Listen from now on. A database that does not answer is tried again, never raised."""
        await self._bell.start()

    async def update(self, wanted: Wanted, plan: Plan, sight: Sight) -> None:
        """Set and clear flags, once the plan is carried out. Raises JobQueueError when the queue does not answer."""
        if sight.snapshot is None:
            return
        at_zero = [pool for pool in wanted.pools if _at_zero(pool, plan, sight)]
        self._look_within = min(
            (pool.spec.target.oldest_message_age.total_seconds() / LOOKS for pool in at_zero), default=float("inf")
        )
        names = {pool.key for pool in at_zero}
        self._bell.listen_for(names)
        for pool in wanted.pools:
            seen = sight.snapshot.find(pool.key)
            asleep = pool.key in names
            # A flag may be lost, with a standby that became the database.
            if seen is not None and (self._flags.get(pool.key) != asleep or (asleep and seen.sleepers == 0)):
                await self._queue.sleeping(pool.key, asleep=asleep)
                self._flags[pool.key] = asleep
                if asleep:
                    self._bell.wake()  # what was committed before the flag was, announced itself to nobody
        for class_ in self._flags.keys() - {pool.key for pool in wanted.pools}:
            await self._queue.sleeping(class_, asleep=False)
            del self._flags[class_]

    @property
    def look_within(self) -> float:
        """Seconds within which to look again for the sake of a class at zero; infinite without one."""
        return self._look_within

    async def wait(self, seconds: float) -> None:
        """Return when it is time to look again: after `seconds`, or earlier for a class at zero."""
        await asyncio.sleep(LEAST)  # jobs that are enqueued one by one ring one by one
        await self._bell.wait(max(min(seconds, self._look_within) - LEAST, 0.0))

    async def stop(self, *, leading: bool) -> None:
        """Stop listening; take the flags down too, while the database is ours to lead."""
        await self._bell.stop()
        if leading:
            with contextlib.suppress(JobQueueError):
                for class_ in [class_ for class_, asleep in self._flags.items() if asleep]:
                    await self._queue.sleeping(class_, asleep=False)


def _at_zero(pool: PoolSpec, plan: Plan, sight: Sight) -> bool:
    decided, seen = plan.pool(pool.key), sight.facts.classes.get(pool.key)
    return (
        decided is not None
        and decided.decision.replicas == 0
        and seen is not None
        and not seen.paused
        # What waits was seen, and there is a reason why nobody works on it: more of it is no news.
        and seen.ready == seen.in_flight == 0
    )
