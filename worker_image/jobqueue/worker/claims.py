"""Claiming: as many jobs as there is room for, ahead of the slots by what measured speed makes worth while."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import structlog

from jobqueue import queue
from jobqueue.errors import JobQueueError, WorkerRefused
from jobqueue.wakeup.reconnect import Outage
from jobqueue.worker import pacing, pipe
from jobqueue.worker.clock import now
from jobqueue.worker.link import RETRYABLE, LinkDownError, first_line
from jobqueue.worker.workload import Held

if TYPE_CHECKING:
    from datetime import datetime

    from jobqueue.wakeup import Wakeup
    from jobqueue.worker.counts import Counts
    from jobqueue.worker.link import Link
    from jobqueue.worker.pipe import Pipe
    from jobqueue.worker.workload import Workload

log = structlog.get_logger("jobqueue.worker")

BATCH = 500  # most jobs in one claim
MOST_UNACKED = 8_000  # finished, and the database has not said so yet: then nothing is claimed; below board.RING
UNACKED_PAUSE = 0.05  # seconds between looks at that
AHEAD = 0.01  # seconds of work to hold beyond what two claims take
BUSY = 32  # a full claim of so many: enqueues need send no NOTIFY for now
LIMITED_POLL = 0.25  # seconds between looks while other workers may give units of a downstream back
SHORT_PAUSE = 0.003  # seconds between claims that found less than they asked for: wakes coalesce


class Claims:
    """The claim loop. `permitted` is the supervisor's word: active, not paused, leases being renewed."""

    def __init__(
        self,
        link: Link,
        workload: Workload,
        counts: Counts,
        to_supervisor: Pipe,
        wakeup: Wakeup,
        *,
        class_name: str,
        worker: int,
        schema: str,
        lease: float,
        prefetch: int,
        poll_interval: float,
        limited: bool,
        log_jobs: bool,
    ) -> None:
        self._link = link
        self._workload = workload
        self._counts = counts
        self._pipe = to_supervisor
        self._wakeup = wakeup
        self._class = class_name
        self._worker = worker
        self._schema = schema
        self._lease = lease
        self._most_ahead = prefetch
        self._poll_interval = min(poll_interval, LIMITED_POLL) if limited else poll_interval
        self._log_jobs = log_jobs
        self._outage = Outage(logging.getLogger("jobqueue.worker"), "claims", every=30.0)
        self._request = 0
        self._claim_seconds = 0.005
        self._rate = 0.0  # jobs a second, lately
        self._measured = (now(), 0)
        self._flagged = False  # enqueues are asked for a NOTIFY
        self._floor: datetime | None = None
        self._full_at = 0.0
        self._full_took = 0.0
        self._permitted = asyncio.Event()
        self._stopping = False
        self._resting = False

    def permit(self, *, allowed: bool) -> None:
        """Claim from now on, or no longer."""
        if self._stopping:
            return
        if not allowed:
            self._permitted.clear()
        elif not self._permitted.is_set():
            self._permitted.set()
            self._wakeup.wake()

    def stop(self) -> None:
        """Claim nothing more. A claim under way still arrives: whoever stops gives it back."""
        self._stopping = True
        self._permitted.set()
        self._workload.room.set()
        self._wakeup.wake()

    async def run(self) -> None:
        """Claim until stopped."""
        while not self._stopping:
            await self._permitted.wait()
            await self._workload.room.wait()
            if self._stopping:
                return
            wanted = self._wanted()
            if wanted > 0:
                await self._look(wanted)
                continue
            self._workload.room.clear()
            if self._workload.unacknowledged >= MOST_UNACKED:
                await asyncio.sleep(UNACKED_PAUSE)
                self._workload.room.set()

    async def _look(self, wanted: int) -> None:
        try:
            found = await self._claim(wanted)
        except (LinkDownError, *RETRYABLE):
            return  # the next call reconnects, with pauses
        except WorkerRefused as error:
            self._refused(error)
            return
        except (JobQueueError, psycopg.Error) as error:
            self._outage.failed(first_line(error))
            await self._wakeup.wait(self._poll_interval)
            return
        self._outage.over()
        if self._stopping:
            return
        if found < wanted:
            await self._rest(found)
        elif found >= BUSY and self._flagged:
            await self._flag(asleep=False)

    def _refused(self, error: WorkerRefused) -> None:
        if self._permitted.is_set() and not self._stopping:
            log.warning("claim refused", error=first_line(error))
            self._permitted.clear()
            self._pipe.send(type="refused")

    def _wanted(self) -> int:
        work = self._workload
        if work.unacknowledged >= MOST_UNACKED:
            return 0
        moment, ended = self._measured
        passed = now() - moment
        if passed > self._claim_seconds:
            rate = (work.ended - ended) / passed
            # Up at once, down slowly: one empty look says nothing about the next burst.
            self._rate = rate if rate > self._rate else self._rate * 0.8 + rate * 0.2
            self._measured = (now(), work.ended)
        ahead = min(self._most_ahead, int(self._rate * (2 * self._claim_seconds + AHEAD)))
        work.claim_at = work.slots + ahead - max(1, min(BATCH, ahead // 2))
        if work.outstanding > work.claim_at:
            return 0
        return min(BATCH, work.slots + ahead - work.outstanding)

    async def _claim(self, wanted: int) -> int:
        self._request += 1
        sent = now()
        full = self._floor is None or sent - self._full_at > pacing.interval(self._full_took)
        rows = await self._link.call(
            queue.claim,
            self._class,
            self._worker,
            self._request,
            max_jobs=wanted,
            # As it was registered: the class's may have changed since, and renewals keep to ours.
            lease=timedelta(seconds=self._lease),
            floor=None if full else self._floor,
            schema=self._schema,
        )
        took = now() - sent
        self._claim_seconds += 0.2 * (took - self._claim_seconds)
        if full:
            self._full_at, self._full_took = sent, took
        if len(rows) < wanted:
            self._floor = None
        else:
            self._floor = min(row.due_at for row in rows)
        if rows:
            self._take(rows, sent)
            await self._pipe.drain()
            if rows[0].suspect:
                return wanted  # it comes alone, and says nothing about what else is due
        return len(rows)

    def _take(self, rows: list[queue.Claimed], sent: float) -> None:
        # Before any handler starts: it may hold the interpreter from its first line.
        told: list[int] = [int(sent * 1e9)]
        for row in rows:
            told += (row.id, row.token)
        self._pipe.send_numbers(pipe.HOLD, told)
        self._counts.claims += len(rows)
        end = sent + self._lease
        jobs = [Held(row, self._schema, end) for row in rows]
        if self._stopping:
            for held in jobs:
                held.stop = "drain"  # it came too late to start: its slot gives it back
        self._workload.add(jobs)
        if self._log_jobs:
            for row in rows:
                log.info(
                    "claimed",
                    job_id=row.id,
                    kind=row.kind,
                    attempt=row.attempt,
                    correlation_id=row.correlation_id,
                )

    async def _rest(self, found: int) -> None:
        """Nothing more is due: ask for a wake-up, look once more, sleep."""
        if not self._flagged and not found:
            await self._flag(asleep=True)
            return
        if found:
            await asyncio.sleep(SHORT_PAUSE)
            if not self._flagged:
                return
        self._resting = True
        await self._wakeup.wait(self._poll_interval)
        self._resting = False

    def look_again(self) -> None:
        """Look once more: an acknowledgement may have made room under a limit that held the last claim back."""
        if self._resting:
            self._wakeup.wake()

    async def _flag(self, *, asleep: bool) -> None:
        try:
            await self._link.call(queue.sleeping, self._worker, self._class, asleep, schema=self._schema)
            self._flagged = asleep
        except (LinkDownError, JobQueueError, *RETRYABLE):
            self._flagged = False

    async def recover(self, connection: psycopg.AsyncConnection[object]) -> None:
        """After a reconnect: have leases given back that a lost answer told us of in vain."""
        known = list(self._workload.held)
        try:
            number = await queue.recover(connection, self._worker, self._request, known, schema=self._schema)
        except WorkerRefused as error:
            self._refused(error)
            return
        if number:
            self._counts.gave_back("reconnected", number)
            log.info("gave back jobs whose claim was not heard", jobs=number)
