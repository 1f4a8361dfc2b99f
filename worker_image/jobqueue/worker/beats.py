"""Heartbeats: the worker's own, and the renewal of every lease its runner holds.

By the supervisor, which runs no user code, on its own connection, so that no handler can stop them.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg

from jobqueue import queue
from jobqueue.errors import QueueError
from jobqueue.wakeup.reconnect import Outage
from jobqueue.worker.clock import now
from jobqueue.worker.link import RETRYABLE, LinkDownError, first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jobqueue.worker.leases import Leases
    from jobqueue.worker.link import Link
    from jobqueue.worker.pipe import Pipe

LONGEST = 5.0  # seconds between two heartbeats
SHARE = 0.25  # or this share of the lease
FENCED = 1.0  # while retired: who is taken back is needed now
BATCH = 1000  # leases renewed by one statement
BUSY_PAUSE = 0.1  # seconds before a row that was being written is asked for again
BUSY_TRIES = 5
ERROR_PAUSE = 0.5  # seconds after an error that is not the connection's


class Beats:
    """Renews and reports, for one runner."""

    def __init__(
        self,
        link: Link,
        leases: Leases,
        runner: Pipe,
        worker: int,
        schema: str,
        on_state: Callable[[str, bool], bool],
        *,
        heartbeat: float | None = None,
    ) -> None:
        """`on_state` hears state and paused of each heartbeat and says whether the runner may claim."""
        self._link = link
        self._leases = leases
        self._pipe = runner
        self._worker = worker
        self._schema = schema
        self._on_state = on_state
        self._now = asyncio.Event()
        self._outage = Outage(logging.getLogger("jobqueue.worker"), "heartbeats", every=30.0)
        self.period = min(heartbeat or LONGEST, SHARE * leases.duration)
        self._fenced = False
        self.last = now()

    def hurry(self) -> None:
        """Beat at once: something may have changed."""
        self._now.set()

    async def run(self) -> None:
        """Beat, for ever."""
        while True:
            self._now.clear()
            try:
                await self._beat()
            except LinkDownError:
                await asyncio.sleep(0.05)
                continue
            except RETRYABLE:
                continue
            except (psycopg.Error, QueueError) as error:
                self._outage.failed(first_line(error))
                await asyncio.sleep(ERROR_PAUSE)
                continue
            self._outage.over()
            try:
                async with asyncio.timeout(min(self.period, FENCED) if self._fenced else self.period):
                    await self._now.wait()
                    await asyncio.sleep(0.05)  # hints come in swarms
            except TimeoutError:
                pass

    async def _beat(self) -> None:
        patience = max(self.period, 1.0)
        renewed: list[int] = []
        cancel: set[int] = set()
        began = now()
        due = self._leases.due(before=began - self.period / 2)
        for at in range(0, len(due), BATCH):
            renewed += await self._renew(due[at : at + BATCH], cancel, patience)
        beat = await self._link.call(queue.heartbeat, self._worker, patience=patience, schema=self._schema)
        self.last = began
        self._fenced = beat.state == "retired"
        cancel.update(beat.cancel)
        self._pipe.send(type="pulse", active=self._on_state(beat.state, beat.paused), sent=began, renewed=renewed)
        if cancel:
            self._pipe.send(type="cancel", ids=sorted(cancel))

    async def _renew(self, pairs: Sequence[tuple[int, int]], cancel: set[int], patience: float) -> list[int]:
        todo = list(pairs)
        renewed: list[int] = []
        for attempt in range(BUSY_TRIES):
            sent = now()
            rows = await self._link.call(
                queue.extend,
                self._worker,
                [job for job, _ in todo],
                [token for _, token in todo],
                lease=timedelta(seconds=self._leases.duration),
                patience=patience,
                schema=self._schema,
            )
            tokens = dict(todo)
            extended = [tokens[row.id] for row in rows if row.result == "extended"]
            self._leases.renewed(extended, sent)
            renewed += extended
            cancel.update(row.id for row in rows if row.cancel)
            self._stale([tokens[row.id] for row in rows if row.result == "stale"])
            todo = [(row.id, tokens[row.id]) for row in rows if row.result == "busy"]
            if not todo or attempt == BUSY_TRIES - 1:
                break
            await asyncio.sleep(BUSY_PAUSE)
        return renewed

    def _stale(self, tokens: list[int]) -> None:
        # One that was acknowledged while this renewal was under way is stale too; the runner knows which.
        still = [token for token in tokens if token in self._leases]
        if still:
            self._leases.lose(still)
            self._pipe.send(type="lost", tokens=still)
