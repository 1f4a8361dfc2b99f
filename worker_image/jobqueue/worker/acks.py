"""Acknowledgements, in batches on a connection of their own, each under its lease token.

A batch is repeated when its connection is lost: a token that already ended its job is answered `already`. A `stale`
row means that the lease was lost; it is counted and logged, and affects no other row.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import structlog

from jobqueue import queue
from jobqueue.errors import QueueError
from jobqueue.worker import pipe
from jobqueue.worker.clock import now
from jobqueue.worker.link import first_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from jobqueue.worker.counts import Counts
    from jobqueue.worker.faults import Fault
    from jobqueue.worker.link import Link
    from jobqueue.worker.pipe import Pipe
    from jobqueue.worker.workload import Held, Workload

log = structlog.get_logger("jobqueue.worker")

BATCH = 1000  # rows in a statement
LINGER = 0.002  # seconds an acknowledgement waits for company
LATEST = datetime(9999, 1, 1, tzinfo=UTC)  # for a Snooze beyond what a datetime can say


class Acks:
    """Collects what became of jobs and tells the database."""

    def __init__(
        self, link: Link, workload: Workload, counts: Counts, to_supervisor: Pipe, schema: str, *, log_jobs: bool
    ) -> None:
        self._link = link
        self._workload = workload
        self._counts = counts
        self._pipe = to_supervisor
        self._schema = schema
        self._log_jobs = log_jobs
        self._done: list[Held] = []
        self._faults: list[tuple[Held, Fault]] = []
        self._more = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self.on_answer: Callable[[], None] = lambda: None

    def done(self, held: Held) -> None:
        """Take a job whose handler returned."""
        self._done.append(held)
        self._more.set()

    def fault(self, held: Held, fault: Fault) -> None:
        """Take an attempt that ended without success, or is given back."""
        self._faults.append((held, fault))
        self._more.set()

    def forget(self, held: Held) -> None:
        """Nothing is to be told: a transaction of the handler's did it, or the lease is lost."""
        self._drop([held])
        self.on_answer()

    @property
    def backlog(self) -> int:
        """How many wait to be told."""
        return len(self._done) + len(self._faults)

    async def run(self) -> None:
        """Tell the database, for ever."""
        while True:
            await self._more.wait()
            if self.backlog < BATCH:
                await asyncio.sleep(LINGER)
            self._more.clear()
            self._settled.clear()
            done, self._done = self._done, []
            faults, self._faults = self._faults, []
            for at in range(0, len(done), BATCH):
                await self._complete(done[at : at + BATCH])
            if faults:
                await self._end(faults)
            if not self.backlog:
                self._settled.set()

    async def settled(self) -> None:
        """Wait until everything told so far has been answered."""
        while self.backlog or not self._settled.is_set():
            await self._settled.wait()
            await asyncio.sleep(0)

    async def _complete(self, batch: Sequence[Held]) -> None:
        rows = await self._tell(queue.complete_many, [(held.id, held.token) for held in batch], schema=self._schema)
        self._answered(batch, rows)

    async def _end(self, faults: Sequence[tuple[Held, Fault]]) -> None:
        fails = [(held, fault) for held, fault in faults if fault.outcome in {"retry", "dead", "cancelled"}]
        for at in range(0, len(fails), BATCH):
            some = fails[at : at + BATCH]
            rows = await self._tell(
                queue.fail_many,
                [(h.id, h.token, f.error, f.outcome, f.retry_after, f.reason) for h, f in some],
                schema=self._schema,
            )
            self._answered([held for held, _ in some], rows)
        snoozes = [(held, fault) for held, fault in faults if fault.outcome == "snooze"]
        if snoozes:
            rows = await self._tell(
                queue.snooze_many,
                [(h.id, h.token, _moment(h, f.until)) for h, f in snoozes],
                schema=self._schema,
            )
            self._answered([held for held, _ in snoozes], rows)
        for reason in {fault.reason or "released" for _, fault in faults if fault.outcome == "release"}:
            some_held = [
                held for held, fault in faults if fault.outcome == "release" and (fault.reason or "released") == reason
            ]
            rows = await self._tell(
                queue.release_many, [(h.id, h.token) for h in some_held], reason=reason, schema=self._schema
            )
            self._answered(some_held, rows, released=reason)

    async def _tell(
        self, verb: Callable[..., Awaitable[list[Any]]], rows: list[tuple[Any, ...]], **named: Any
    ) -> list[Any]:
        """Call a verb that takes one array for each field; a batch the database refuses is told row by row."""
        try:
            return await self._link.call_again(verb, *map(list, zip(*rows, strict=True)), **named)
        except (psycopg.Error, QueueError) as error:
            if len(rows) == 1:
                log.error("acknowledgement refused", job_id=rows[0][0], error=first_line(error))  # noqa: TRY400
                return []
            answers: list[Any] = []
            for row in rows:
                answers += await self._tell(verb, [row], **named)
            return answers

    def _answered(self, batch: Sequence[Held], rows: Sequence[Any], *, released: str | None = None) -> None:
        results: dict[str, int] = {}
        for row in rows:
            results[row.result] = results.get(row.result, 0) + 1
        stale = results.pop("stale", 0)
        for result, number in results.items():
            self._counts.acked(result, number)
        if released is not None:
            self._counts.gave_back(released, len(rows) - stale)
            self._log_released(batch, released)
        if stale:
            self._counts.stale += stale
            by_id = {held.id: held for held in batch}
            for row in rows:
                if row.result == "stale":
                    claimed = by_id[row.id].claimed
                    log.warning(
                        "stale acknowledgement refused: the job is no longer this worker's",
                        job_id=row.id,
                        kind=claimed.kind,
                        attempt=claimed.attempt,
                        correlation_id=claimed.correlation_id,
                    )
        self._drop(batch)
        self.on_answer()

    def _log_released(self, batch: Sequence[Held], reason: str) -> None:
        if not self._log_jobs:
            log.info("released", jobs=len(batch), reason=reason)
            return
        for held in batch:
            claimed = held.claimed
            log.info(
                "released",
                job_id=held.id,
                kind=claimed.kind,
                attempt=claimed.attempt,
                correlation_id=claimed.correlation_id,
                reason=reason,
                duration=round(now() - held.started, 6) if held.started else 0.0,
            )

    def _drop(self, batch: Sequence[Held]) -> None:
        held = self._workload.held
        for each in batch:
            held.pop(each.token, None)
        self._pipe.send_numbers(pipe.DROP, [each.token for each in batch])


def _moment(held: Held, until: datetime | timedelta | None) -> datetime:
    if isinstance(until, datetime):
        return until
    try:
        return held.database_now() + (until or timedelta(0))
    except OverflowError:
        return LATEST
