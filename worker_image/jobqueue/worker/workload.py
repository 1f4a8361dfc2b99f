"""What a runner holds: jobs that wait for a slot, jobs that run, jobs whose acknowledgement is under way."""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from jobqueue.worker.clock import now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from jobqueue.app import Handler
    from jobqueue.queue import Claimed

Stop = Literal["timeout", "cancel", "drain", "lost"]


class Held:
    """One claimed job while this worker holds it. Also the `job.Lease` its handler's job speaks to."""

    __slots__ = (
        "_claimed_end",
        "acked",
        "cancelled",
        "claimed",
        "committing",
        "deadline",
        "handler",
        "id",
        "kill",
        "lease_end",
        "lend",
        "nudged",
        "schema",
        "started",
        "stop",
        "stuck",
        "task",
        "tell",
        "timeout",
        "token",
    )

    def __init__(self, claimed: Claimed, schema: str, lease_end: float) -> None:
        self.claimed = claimed
        self.id = claimed.id
        self.token = claimed.token
        self.schema = schema
        self.lease_end = lease_end
        self._claimed_end = lease_end
        self.acked = False
        self.committing = False
        self.cancelled = False
        self.stop: Stop | None = None
        """Why it is being stopped; decides its outcome unless it finishes all the same."""
        self.stuck = False
        self.started = 0.0
        self.deadline = 0.0
        self.timeout = 0.0
        self.nudged = 0.0
        self.handler: Handler | None = None
        self.task: asyncio.Task[None] | None = None
        self.kill: Callable[[], None] | None = None
        """Ends the process it runs in, when it has one of its own."""
        self.tell: Callable[[float], None] | None = None
        """Tells that process when its lease ends, after a renewal."""
        self.lend: Callable[[], Any] | None = None

    def left(self) -> float:
        """Seconds until the lease ends."""
        return max(0.0, self.lease_end - now())

    def database_now(self) -> datetime:
        """Return the database's time, from what its claim said: nobody's clock but its own decides what is due."""
        return self.claimed.leased_until + timedelta(seconds=now() - self._claimed_end)

    def waited(self) -> float:
        """Seconds from due to start: due to claim by the database's clock, claim to start by ours."""
        before = (self.claimed.leased_until - self.claimed.due_at).total_seconds()
        return max(0.0, before - (self._claimed_end - self.started))

    def connection(self) -> Any:
        """Lend a connection of the kind this handler uses."""
        if self.lend is None:
            raise RuntimeError("no connection is lent before the handler runs")
        return self.lend()


class Workload:
    """Bounded by slots plus prefetch, and by what may wait for acknowledgement."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.held: dict[int, Held] = {}
        """Everything leased, by token, until its acknowledgement is answered."""
        self.waiting: deque[Held] = deque()
        self.running: list[Held | None] = [None] * slots
        self.outstanding = 0
        """Waiting or running; not those that only wait for their acknowledgement."""
        self.claim_at = slots - 1
        """The claim loop is woken when no more than this are outstanding."""
        self.room = asyncio.Event()
        self.room.set()
        self.ended = 0
        """Handlers that have ended so far, however."""
        self._idle: deque[asyncio.Future[None]] = deque()

    def add(self, jobs: Iterable[Held]) -> None:
        """Take over claimed jobs and wake as many idle slots."""
        for held in jobs:
            self.held[held.token] = held
            self.waiting.append(held)
            self.outstanding += 1
            while self._idle:
                sleeper = self._idle.popleft()
                if not sleeper.done():
                    sleeper.set_result(None)
                    break

    async def until_work(self) -> None:
        """Sleep, as a slot, until a job is added."""
        sleeper = asyncio.get_running_loop().create_future()
        self._idle.append(sleeper)
        await sleeper

    def over(self) -> None:
        """One outstanding job has ended."""
        self.ended += 1
        self.outstanding -= 1
        if self.outstanding <= self.claim_at:
            self.room.set()

    def take_unstarted(self) -> list[Held]:
        """Take every job that has not started, to give it back."""
        unstarted = list(self.waiting)
        self.waiting.clear()
        self.outstanding -= len(unstarted)
        self.room.set()
        return unstarted

    @property
    def unacknowledged(self) -> int:
        """How many have ended and wait for the database to say so."""
        return len(self.held) - self.outstanding

    def busy(self) -> list[Held]:
        """List the jobs that run."""
        return [held for held in self.running if held is not None]
