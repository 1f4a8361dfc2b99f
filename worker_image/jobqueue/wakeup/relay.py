"""The relay: publish `{"job_id": N}` for ready jobs, after their commit and out of everybody's way.

It reads committed ready rows, so that nothing is announced that does not exist, and it is no part of any
enqueue, so that a broker that is slow, down or full costs latency only. It is level-triggered: the first ready
jobs of each class are published, each again only after a while if it still waits.

While the broker is away nothing is read and nothing piles up; what is remembered is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aio_pika
import psycopg
from psycopg import sql

from jobqueue import migrate
from jobqueue.errors import JobQueueError
from jobqueue.queue import sleeping
from jobqueue.wakeup import broker as amqp
from jobqueue.wakeup.notify import NotifyWakeup
from jobqueue.wakeup.polling import PollingWakeup
from jobqueue.wakeup.reconnect import Backoff, Outage

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from aio_pika.abc import AbstractChannel

    from jobqueue.wakeup.notify import Opener

log = logging.getLogger(__name__)

RELAY = -1  # the relay's number among the sleepers; workers count from 1, the operator is 0


@dataclass(frozen=True)
class Pace:
    """How fast the relay goes. Times in seconds."""

    poll: float = 1.0  # between two looks when nothing announces work
    busy: float = 0.05  # between two looks while there is work: many enqueues, one look
    again: float = 30.0  # before a job that still waits is published again
    batch: int = 100  # ids of a class in one look; every message beyond the idle workers is wasted
    remembered: int = 100_000  # ids published lately, over all classes
    call: float = 10.0  # for one database call


class Recent:
    """The ids published in the last `seconds`, at most `limit` of them; the oldest are forgotten first."""

    def __init__(self, *, seconds: float, limit: int) -> None:
        self._seconds = seconds
        self._limit = limit
        self._at: OrderedDict[int, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._at)

    def unknown(self, ids: Collection[int], *, now: float) -> list[int]:
        """Return those of `ids` that were not published lately."""
        while self._at and next(iter(self._at.values())) <= now - self._seconds:
            self._at.popitem(last=False)
        return [id_ for id_ in ids if id_ not in self._at]

    def add(self, id_: int, *, now: float) -> None:
        """Remember that `id_` was published at `now`."""
        self._at[id_] = now
        self._at.move_to_end(id_)
        if len(self._at) > self._limit:
            self._at.popitem(last=False)


class Relay:
    """Publishes ready jobs of some classes until stopped. One a database is enough; two only publish more.

    `connect` opens a connection for reading, `listen` one for LISTEN (None: the relay polls). `published`
    counts confirmed messages; `lag` is the age in seconds of the oldest job that the last look published.
    """

    def __init__(
        self,
        connect: Opener,
        broker: str | Path,
        *,
        classes: Collection[str],
        listen: Opener | None = None,
        schema: str = "jobqueue",
        pace: Pace | None = None,
    ) -> None:
        amqp.check_url(broker)
        self._connect = connect
        self._broker = broker
        self._classes = sorted(classes)
        self._schema = schema
        self._pace = pace or Pace()
        self._recent = Recent(seconds=self._pace.again, limit=self._pace.remembered)
        self._wakeup: PollingWakeup = (
            NotifyWakeup(listen, classes=classes, schema=schema) if listen else PollingWakeup()
        )
        self._backoff = Backoff(longest=amqp.RETRY)
        self._outage = Outage(log, "the relay")
        self._task: asyncio.Task[None] | None = None
        self.published = 0
        self.failures = 0
        self.lag = 0.0
        self.relaying = False

    async def start(self) -> None:
        """Relay in the background, until `stop`. Servers that are away are retried."""
        if self._task is None:
            await self._wakeup.start()
            self._task = asyncio.create_task(self._keep_relaying(), name="relay")

    async def stop(self) -> None:
        """End the relay and its connections. Idempotent."""
        task, self._task = self._task, None
        await self._wakeup.stop()
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _keep_relaying(self) -> None:
        while True:
            try:
                async with amqp.opened(self._broker) as channel:
                    for class_ in self._classes:
                        await amqp.declare(channel, self._schema, class_)
                    async with asyncio.timeout(self._pace.call):
                        connection = await self._connect()
                    try:
                        await connection.set_autocommit(True)
                        await migrate.check_async(connection, schema=self._schema)
                        await self._relay(connection, channel)
                    finally:
                        await self._leave(connection)
            except (*amqp.FAILURES, psycopg.Error, JobQueueError) as error:
                self.failures += 1
                self._outage.failed(amqp.reason(error))
            finally:
                self.relaying = False
            await asyncio.sleep(self._backoff.next())

    async def _relay(self, connection: psycopg.AsyncConnection[Any], channel: AbstractChannel) -> None:
        asleep = False
        while True:
            async with asyncio.timeout(self._pace.call):
                ready = await self._ready(connection)
            found = await self._publish(channel, ready)
            self.relaying = True
            self._backoff.reset()
            self._outage.over()
            if found == asleep:
                asleep = not found
                async with asyncio.timeout(self._pace.call):
                    await self._raise_flag(connection, asleep=asleep)
                if asleep:
                    continue  # once more: an enqueue that found the flag down has told nobody
            await self._wakeup.wait(self._pace.busy if found else self._pace.poll)

    async def _ready(self, connection: psycopg.AsyncConnection[Any]) -> list[tuple[str, int, float]]:
        """Return (class, job id, seconds since it became due) of the first ready jobs of each class."""
        call = sql.SQL("SELECT class, id, age FROM {}.waiting(%s, %s)").format(sql.Identifier(self._schema))
        cursor = await connection.execute(call, (self._classes, self._pace.batch))
        return await cursor.fetchall()

    async def _publish(self, channel: AbstractChannel, ready: list[tuple[str, int, float]]) -> bool:
        """Publish those not published lately, all confirmed or an error; return whether there were any."""
        now = time.monotonic()
        fresh = set(self._recent.unknown([id_ for _, id_, _ in ready], now=now))
        self.lag = max((age for _, id_, age in ready if id_ in fresh), default=0.0)
        sent = [(id_, self._message(channel, class_, id_)) for class_, id_, _ in ready if id_ in fresh]
        async with asyncio.timeout(amqp.CALL):
            answers = await asyncio.gather(*(message for _, message in sent), return_exceptions=True)
        for (id_, _), answer in zip(sent, answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            self._recent.add(id_, now=now)
            self.published += 1
        return bool(fresh)

    async def _message(self, channel: AbstractChannel, class_: str, id_: int) -> None:
        message = aio_pika.Message(
            json.dumps({"job_id": id_}).encode(),
            content_type="application/json",
            delivery_mode=aio_pika.DeliveryMode.NOT_PERSISTENT,
        )
        await channel.default_exchange.publish(message, amqp.queue_name(self._schema, class_))

    async def _raise_flag(self, connection: psycopg.AsyncConnection[Any], *, asleep: bool) -> None:
        for class_ in self._classes:
            await sleeping(connection, RELAY, class_, asleep, schema=self._schema)

    async def _leave(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Lower the flag if the connection still can, or every enqueue goes on to notify nobody; close it."""
        with contextlib.suppress(psycopg.Error, JobQueueError, TimeoutError):
            async with asyncio.timeout(2):
                await self._raise_flag(connection, asleep=False)
        await connection.close()
