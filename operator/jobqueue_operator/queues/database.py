"""The operator's side of one queue database: one connection, opened again when it breaks, and a limit on every wait."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import sql

from jobqueue import connect, migrate, queue, signals
from jobqueue.errors import MESSAGE_MOST, ConfigurationError, ConnectionFailed, JobQueueError, SchemaError
from jobqueue_operator.queues.allowance import REMEDY, AnswerTooLarge
from jobqueue_operator.queues.capped import Capped, migrating
from jobqueue_operator.queues.fitting import fitting
from jobqueue_operator.registration import class_settings, first_limit, own_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from jobqueue_operator.resources import DownstreamCapacity, JobQueue

T = TypeVar("T")

OPERATOR = 0
"""The worker id under which the queue keeps the operator's waiter flags."""
DEADLINE = 10.0
"""Seconds that any call may take, connecting included."""
SHORTEST_TICK, LONGEST_TICK = 0.1, 10.0
"""Seconds: what the snapshot can be asked to count arrivals over."""
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What decoding an answer raises that no queue gives."""
COUNTING_SHARE = 20.0
"""Counting done jobs takes at most one part in this many of the time: a long count is repeated seldom."""


class Database:
    """Implements `Queue`. The driver's errors arrive as ConnectionFailed, the queue's as themselves."""

    def __init__(self, info: connect.ConnInfo, schema: str, *, holder: str) -> None:
        self._info = info
        self._schema = schema
        self._holder = holder
        self._turn = asyncio.Lock()
        self._connection: Capped | None = None
        self._epoch: int | None = None
        self._done: Mapping[str, int] = {}
        self._count_at = 0.0

    def use(self, info: connect.ConnInfo) -> None:
        """Connect so from now on. What is open is used until it breaks: a login that was renewed ends no session."""
        self._info = info

    @property
    def epoch(self) -> int | None:
        """This leadership's number; None before `prepare`."""
        return self._epoch

    async def lead(self, *, may_migrate: bool) -> None:
        """Become its operator, in place of whoever was. SchemaError when its schema is of another release."""
        try:
            await self._call(lambda c: migrate.check_async(c, schema=self._schema))
        except SchemaError:
            if not may_migrate:
                raise
            await self._migrate()
        self._epoch = await self._call(lambda c: queue.lead(c, self._holder, schema=self._schema))

    async def register(self, queues: Sequence[JobQueue], downstreams: Sequence[DownstreamCapacity]) -> None:
        """Write every limit and class, so that claims hold to them whoever is up."""
        granted = (await self.snapshot(tick=LONGEST_TICK)).database.connections if downstreams else None
        limits = {own_name(downstream): first_limit(downstream, granted) for downstream in downstreams}
        for downstream in downstreams:
            if downstream.spec.connections and not limits[own_name(downstream)]:
                raise ConfigurationError(
                    f"DownstreamCapacity {downstream.metadata.name}: spec.reserve: {downstream.spec.reserve} leaves "
                    f"nothing of the {granted} connections that this server grants; lower reserve, or raise "
                    "max_connections"
                )
        await self.settle(limits, {spec.name: class_settings(q, spec) for q in queues for spec in q.spec.classes})

    async def settle(self, limits: Mapping[str, int], classes: Mapping[str, Mapping[str, Any]]) -> None:
        """Write limits by downstream and settings by class, all or none."""

        async def write(connection: psycopg.AsyncConnection[Any]) -> None:
            async with connection.transaction():
                for name, units in limits.items():
                    await queue.set_downstream(connection, self._epoch, name, units, schema=self._schema)
                for name, settings in classes.items():
                    await queue.set_class(connection, self._epoch, name, settings, schema=self._schema)

        await self._call(write)

    async def snapshot(self, *, tick: float) -> signals.Snapshot:
        """Return all facts of all classes."""
        tick = min(max(tick, SHORTEST_TICK), LONGEST_TICK)

        async def read(connection: psycopg.AsyncConnection[Any]) -> signals.Snapshot:
            return signals.decode(fitting(await queue.snapshot(connection, tick=tick, schema=self._schema)))

        return await self._call(read)

    async def done(self) -> Mapping[str, int]:
        """Return how many jobs of each class are done. The count is repeated no more often than it can be afforded."""
        began = time.monotonic()
        if began >= self._count_at:
            self._done = await self._call(self._count)
            self._count_at = time.monotonic() + COUNTING_SHARE * (time.monotonic() - began)
        return self._done

    async def retire(self, workers: Sequence[int]) -> Mapping[int, int]:
        """Fence workers; return how many jobs each still holds, by id."""
        return await self._call(lambda c: queue.retire_worker(c, self._epoch, workers, schema=self._schema))

    async def take_back(self, workers: Sequence[int]) -> Sequence[int]:
        """Let retired workers claim again; return the ids of those that were retired."""
        return await self._call(lambda c: queue.unretire_worker(c, self._epoch, workers, schema=self._schema))

    async def limit(self, downstream: str, units: int) -> None:
        """Hold the claims on a downstream to so many units."""
        await self._call(lambda c: queue.set_downstream(c, self._epoch, downstream, units, schema=self._schema))

    async def remember(self, class_: str, memory: Mapping[str, float]) -> None:
        """Keep what a planner must know of a class after a restart."""
        await self._call(lambda c: queue.remember(c, self._epoch, class_, memory, schema=self._schema))

    async def sleeping(self, class_: str, *, asleep: bool) -> None:
        """Set or take down the operator's waiter flag for a class."""
        await self._call(lambda c: queue.sleeping(c, OPERATOR, class_, asleep, schema=self._schema))

    async def forget(self, workers: Sequence[int]) -> int:
        """End dead workers; what they held is lost and ready again. Return how many jobs that were."""

        async def end(connection: psycopg.AsyncConnection[Any]) -> int:
            return sum([await queue.forget_worker(connection, worker, schema=self._schema) for worker in workers])

        return await self._call(end)

    async def upkeep(self, *, maintain: bool) -> None:
        """Sweep; run maintenance too when asked to."""
        await self._call(lambda c: queue.sweep(c, schema=self._schema))
        if maintain:
            await self._call(lambda c: queue.maintain(c, schema=self._schema))

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _migrate(self) -> None:
        kind = migrating(asyncio.get_running_loop())

        def apply() -> None:
            with connect.open_sync(self._info, kind=kind, autocommit=True) as connection:
                migrate.apply(connection, schema=self._schema)

        try:
            await asyncio.to_thread(apply)
        except psycopg.Error as error:
            raise JobQueueError(f"the schema could not be migrated: {_line(error)}") from None

    async def _count(self, connection: psycopg.AsyncConnection[Any]) -> dict[str, int]:
        query = sql.SQL("SELECT class, count(*) FROM {}.jobs WHERE status = 'done' GROUP BY class")
        cursor = await connection.execute(query.format(sql.Identifier(self._schema)))
        return dict(await cursor.fetchall())

    async def _call(self, work: Callable[[psycopg.AsyncConnection[Any]], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(DEADLINE), self._turn:
                if self._connection is None or self._connection.closed:
                    self._connection = await connect.open_async_as(Capped, self._info, autocommit=True)
                    # Without a handler the driver keeps every notification, and nobody asks for them here.
                    self._connection.add_notify_handler(lambda _: None)
                with self._connection.answer() as connection:
                    return await work(connection)
        except TimeoutError:
            await self._drop()
            raise ConnectionFailed(f"the database did not answer within {DEADLINE:g}s") from None
        except AnswerTooLarge:
            await self._drop()
            raise
        except psycopg.OperationalError as error:
            await self._drop()
            raise ConnectionFailed(_line(error)) from None
        except psycopg.Error as error:
            raise JobQueueError(_line(error)) from None
        except UNREADABLE as error:
            await self._drop()
            said = f"the database answered what no queue does ({type(error).__name__}: {error!s:.200}); {REMEDY}"
            raise JobQueueError(said) from error

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _line(error: psycopg.Error) -> str:
    primary = error.diag.message_primary
    return (primary or next(iter(str(error).strip().splitlines()), type(error).__name__))[:MESSAGE_MOST]
