"""Work for the queue as a whole that some worker has to do: sweeping expired leases, and maintenance."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import psycopg
import structlog

from jobqueue import queue
from jobqueue.errors import ConnectionFailed, QueueError
from jobqueue.worker import pacing
from jobqueue.worker.clock import now
from jobqueue.worker.link import LinkDownError, first_line, once

if TYPE_CHECKING:
    from jobqueue.connect import ConnInfo
    from jobqueue.worker.link import Link

log = structlog.get_logger("jobqueue.worker")

MAINTAIN = 600.0  # seconds between two maintenances of this worker
MAINTAIN_TIMEOUT = 120.0


class Upkeep:
    """Sweeps about once a second and maintains about every ten minutes, each with jitter."""

    def __init__(self, link: Link, info: ConnInfo, schema: str, *, rng: random.Random | None = None) -> None:
        self._link = link  # shared with the heartbeats: a sweep is short
        self._info = info  # maintenance is not, and gets a connection of its own
        self._schema = schema
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing

    async def sweep(self) -> None:
        """Take over expired leases, for ever."""
        while True:
            began = now()
            try:
                swept = await self._link.call(queue.sweep, schema=self._schema)
                if swept.requeued or swept.dead or swept.cancelled:
                    log.info(
                        "swept expired leases", requeued=swept.requeued, dead=swept.dead, cancelled=swept.cancelled
                    )
            except (LinkDownError, QueueError, psycopg.Error) as error:
                log.debug("sweep failed", error=first_line(error))
            took = now() - began
            await asyncio.sleep(pacing.interval(took) * self._rng.uniform(0.75, 1.25))

    async def maintain(self) -> None:
        """Look after partitions and retention, for ever."""
        pause = MAINTAIN * self._rng.uniform(0.05, 1.0)  # workers that start together must not do it together
        while True:
            await asyncio.sleep(pause)
            pause = MAINTAIN * self._rng.uniform(0.75, 1.25)
            try:
                async with asyncio.timeout(MAINTAIN_TIMEOUT), once(self._info, "maintenance") as connection:
                    for done in await queue.maintain(connection, schema=self._schema):
                        log.info("maintenance", action=done.action, detail=done.detail, rows=done.rows)
            except (ConnectionFailed, QueueError, psycopg.Error, OSError) as error:
                log.warning("maintenance failed", error=first_line(error))
