"""What a handler is given: the job's facts, its transaction, and how much of its lease is left."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from jobqueue import queue
from jobqueue.transaction import AsyncScope, Lease, SyncScope

if TYPE_CHECKING:
    import psycopg

__all__ = ["Job", "Lease", "SyncJob"]

M = TypeVar("M")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Facts(Generic[M]):
    """What both kinds of job tell about themselves."""

    __slots__ = ("_claimed", "_lease", "payload", "state")

    def __init__(self, claimed: queue.Claimed, payload: M, lease: Lease) -> None:
        self._claimed = claimed
        self._lease = lease
        self.payload = payload
        """The payload, validated: an instance of M."""
        self.state: Any = claimed.checkpoint
        """The last checkpoint of any attempt; None when there was none."""

    @property
    def id(self) -> int:
        """The job's number, as `enqueue` returned it."""
        return self._claimed.id

    @property
    def class_(self) -> str:
        """The job class it runs in."""
        return self._claimed.class_

    @property
    def kind(self) -> str:
        """The handler's name."""
        return self._claimed.kind

    @property
    def version(self) -> int:
        """The payload's schema version."""
        return self._claimed.version

    @property
    def attempt(self) -> int:
        """Which attempt this is: 1 for the first."""
        return self._claimed.attempt

    @property
    def max_attempts(self) -> int:
        """After how many attempts the job is dead."""
        return self._claimed.max_attempts

    @property
    def correlation_id(self) -> str | None:
        """The producer's correlation id."""
        return self._claimed.correlation_id

    @property
    def actor_id(self) -> str | None:
        """On whose behalf the job was enqueued. Check again what they may do: that is what `authorize` is for."""
        return self._claimed.actor_id

    @property
    def tenant(self) -> str | None:
        """The tenant the job counts for."""
        return self._claimed.tenant

    @property
    def trace_context(self) -> Any:
        """The producer's trace context: a dict of W3C headers, or None."""
        return self._claimed.trace_context

    @property
    def enqueued_at(self) -> datetime:
        """When it was enqueued, by the database's clock."""
        return self._claimed.enqueued_at

    @property
    def due_at(self) -> datetime:
        """When it became due, by the database's clock."""
        return self._claimed.due_at

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked to cancel it. Threads must look at this themselves; others are stopped."""
        return self._lease.cancelled

    def lease_left(self) -> float:
        """Seconds until the lease ends, were it not renewed. The worker renews it while the handler runs."""
        return self._lease.left()

    def effect_key(self, name: str) -> str:
        """Return an idempotency key for the outside world: the same for every attempt and redrive of this job."""
        created = (self._claimed.enqueued_at - _EPOCH) // timedelta(microseconds=1)
        return f"jobqueue-{self._claimed.id}-{created}-{name}"

    def __repr__(self) -> str:
        return f"<job {self.id} {self.kind}@{self.version} attempt {self.attempt}>"  # never the payload


class Job(_Facts[M]):
    """The argument of an `async def` handler. M is the payload's type."""

    __slots__ = ()

    def transaction(self, connection: psycopg.AsyncConnection[Any] | None = None, *, ack: bool = True) -> AsyncScope:
        """Open a transaction whose commit is also the job's acknowledgement: `async with … as tx`.

        `connection`: your own, idle, to the queue's database; by default one is lent. `ack=False` commits the
        effect alone. Raises StaleLease, and writes nothing, when the job is no longer this worker's. What the
        handler raises after it is logged and not retried: the job is done.
        """
        return AsyncScope(self._lease, connection, ack=ack)

    async def checkpoint(self, state: Any) -> None:
        """Store `state` (JSON, up to 256 KiB) for the next attempt, should this one not finish."""
        async with self._lease.connection() as connection:
            await queue.checkpoint(connection, self._lease.id, self._lease.token, state, schema=self._lease.schema)
        self.state = state


class SyncJob(_Facts[M]):
    """The argument of a `def` handler, in a thread or in a process of its own. M is the payload's type."""

    __slots__ = ()

    def transaction(self, connection: psycopg.Connection[Any] | None = None, *, ack: bool = True) -> SyncScope:
        """Open a transaction whose commit is also the job's acknowledgement: `with … as tx`. See Job.transaction."""
        return SyncScope(self._lease, connection, ack=ack)

    def checkpoint(self, state: Any) -> None:
        """Store `state` (JSON, up to 256 KiB) for the next attempt, should this one not finish."""
        with self._lease.connection() as connection:
            queue.checkpoint(connection, self._lease.id, self._lease.token, state, schema=self._lease.schema)
        self.state = state
