"""Slots: a coroutine for each job at a time. A pool of them costs less than a task for each job."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import types
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import structlog
from pydantic import ValidationError

from jobqueue.job import Job, SyncJob
from jobqueue.worker import faults
from jobqueue.worker.board import CURRENT, CURRENT_DEADLINE
from jobqueue.worker.clock import now
from jobqueue.worker.counts import LEASE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from jobqueue.app import App, Handler
    from jobqueue.worker.acks import Acks
    from jobqueue.worker.board import Board
    from jobqueue.worker.children import Children
    from jobqueue.worker.counts import Counts
    from jobqueue.worker.faults import Fault
    from jobqueue.worker.pools import AsyncPool, SyncPool
    from jobqueue.worker.workload import Held, Workload

log = structlog.get_logger("jobqueue.worker")

BREATH = 64  # jobs a slot may run in a row before it lets the loop turn: handlers need not suspend
LITTLE = LEASE[0]
SAFETY = 0.1  # share of the lease that must be left for a job to start


class Slots:
    """Runs the handlers."""

    def __init__(
        self,
        app: App,
        workload: Workload,
        acks: Acks,
        counts: Counts,
        board: Board,
        children: Children,
        lend_async: AsyncPool,
        lend_sync: SyncPool,
        *,
        lease: float,
        timeout: float,
        log_jobs: bool,
    ) -> None:
        self._app = app
        self._workload = workload
        self._acks = acks
        self._counts = counts
        self._board = board
        self._children = children
        self._lend_async = lend_async.lend
        self._lend_sync = lend_sync.lend
        self._lease = lease
        self._timeout = timeout
        self._log_jobs = log_jobs
        self._threads = ThreadPoolExecutor(max_workers=workload.slots, thread_name_prefix="handler")
        self._tasks: list[asyncio.Task[None]] = []
        self._context = copy_context()
        self._stopping = False

    def start(self) -> None:
        """Start every slot."""
        self._tasks = [self._start(index) for index in range(self._workload.slots)]

    def _start(self, index: int) -> asyncio.Task[None]:
        return asyncio.create_task(self._slot(index), name=f"slot-{index}", context=self._context.copy())

    async def stop(self) -> None:
        """End the slots; nothing runs in them any more, or the process ends anyway."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks, timeout=1.0)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _slot(self, index: int) -> None:
        work = self._workload
        waiting, running = work.waiting, work.running
        in_a_row = 0
        while True:
            if not waiting:
                await work.until_work()
                continue
            in_a_row += 1
            if in_a_row >= BREATH:
                in_a_row = 0
                await asyncio.sleep(0)
                continue
            held = running[index] = waiting.popleft()
            held.task = self._tasks[index]
            try:
                await self._run(index, held)
            finally:
                running[index] = None
                work.over()
            if copy_context() != self._context:
                # The handler left context variables behind, which cannot be unset: the next job gets a slot without.
                self._tasks[index] = self._start(index)
                return

    async def _run(self, index: int, held: Held) -> None:
        claimed = held.claimed
        started = held.started = now()
        if held.stop is not None or held.lease_end - started < SAFETY * self._lease:
            self._not_started(held)
            return
        handler = self._app.find(claimed.kind, claimed.version)
        if handler is None:  # two kinds with one hash: slower, never wrong
            self._acks.fault(held, faults.Fault("release", reason="unknown kind"))
            return
        held.handler = handler
        held.timeout = min(handler.timeout or self._timeout, self._timeout)
        held.deadline = started + held.timeout
        self._count_start(held)
        fault: Fault | None
        self._board.started(held.token)
        try:
            if handler.mode == "process" or claimed.suspect:
                fault = await self._children.run(index, held)
            elif handler.mode == "async":
                fault = await self._in_loop(held, handler)
            else:
                fault = await self._in_thread(index, held, handler)
        except asyncio.CancelledError as error:
            if held.stop is not None:
                fault = self._stopped(held)
            elif self._stopping:
                raise
            else:  # something the handler awaited was cancelled, or it cancelled itself
                fault = self._failed(held, error)
        except BaseException as error:  # noqa: BLE001 - any of them is an outcome
            fault = self._failed(held, error) if held.stop is None else self._stopped(held)
        if held.stop is not None or self._tasks[index].cancelling():
            await _absorb_cancellation()
        self._settle(held, handler, fault, now())

    def _count_start(self, held: Held) -> None:
        counts, attempt = self._counts, held.claimed.attempt
        counts.wait.observe(held.waited())
        if attempt == 1:
            counts.firsts += 1
        else:
            counts.attempts.observe(attempt)

    def _settle(self, held: Held, handler: Handler, fault: Fault | None, ended: float) -> None:
        counts = self._counts
        counts.processed(handler.kind).observe(ended - held.started)
        used = 1 - (held.lease_end - ended) / self._lease
        if used <= LITTLE:
            counts.fresh += 1
            counts.fresh_total += used
        else:
            counts.lease_used.observe(used)
        if held.acked:
            counts.acked("done")
            if fault is not None:
                self._log(held, "raised after its acknowledgement; the job is done and not retried", fault)
            self._acks.forget(held)
        elif fault is None:
            self._board.finished(held.token)
            self._acks.done(held)
            if self._log_jobs:
                self._log(held, "succeeded", None, ended)
        elif fault.outcome == "lost":
            counts.leases_lost += 1
            self._acks.forget(held)
        else:
            self._acks.fault(held, fault)

    def _not_started(self, held: Held) -> None:
        if held.stop == "cancel":
            self._acks.fault(held, faults.Fault("cancelled", reason="cancelled"))
        elif held.stop == "drain":
            self._acks.fault(held, faults.Fault("release", reason="drain"))
        else:
            # Too little of the lease is left, or it is lost: if it is still ours, give it back.
            self._acks.fault(held, faults.Fault("release", reason="late"))

    # --- in the event loop ---

    async def _in_loop(self, held: Held, handler: Handler) -> Fault | None:
        held.lend = self._lend_async
        claimed = held.claimed
        payload = claimed.payload
        if handler.payload_model is not None:
            try:
                payload = handler.payload_model.validate_python(payload)
            except ValidationError as error:
                return self._refused(held, faults.invalid_payload(error))
        job = Job(claimed, payload, held)
        if self._app.authorizer is not None:
            refusal = await self._authorize(held, payload)
            if refusal is not None:
                return self._refused(held, refusal)
        await _stepped(handler.function(job), self._board.cells, held.token, int(held.deadline * 1e9))
        return None

    async def _authorize(self, held: Held, payload: Any) -> Fault | None:
        """Run the application's check: an `async def` in the loop, a `def` in a thread."""
        authorizer = self._app.authorizer
        if authorizer is None:
            return None
        lent = held.lend
        try:
            if inspect.iscoroutinefunction(authorizer):
                held.lend = self._lend_async
                allowed = await authorizer(Job(held.claimed, payload, held))
            else:
                held.lend = self._lend_sync
                job = SyncJob(held.claimed, payload, held)
                allowed = await asyncio.get_running_loop().run_in_executor(self._threads, authorizer, job)
        except Exception as error:  # noqa: BLE001 - any refusal is one
            return faults.not_authorized(error)
        finally:
            held.lend = lent
        return faults.unless_allowed(allowed)

    # --- in a thread ---

    async def _in_thread(self, index: int, held: Held, handler: Handler) -> Fault | None:
        held.lend = self._lend_sync
        payload = held.claimed.payload
        if handler.payload_model is not None:
            try:
                payload = handler.payload_model.validate_python(payload)
            except ValidationError as error:
                return self._refused(held, faults.invalid_payload(error))
        refusal = await self._authorize(held, payload)
        if refusal is not None:
            return self._refused(held, refusal)
        self._board.thread_started(index, held.token, held.deadline)
        try:
            raised = await asyncio.get_running_loop().run_in_executor(
                self._threads, copy_context().run, _call, handler.function, SyncJob(held.claimed, payload, held)
            )
        finally:
            self._board.thread_ended(index)
        # A thread cannot be stopped: when it ended by itself after all, its own outcome counts.
        return None if raised is None else self._failed(held, raised)

    # --- outcomes ---

    def _failed(self, held: Held, error: BaseException) -> Fault:
        fault = faults.from_exception(error)
        self._log(held, "snoozed" if fault.outcome == "snooze" else "failed", fault, at=faults.place(error))
        return fault

    def _refused(self, held: Held, fault: Fault) -> Fault:
        self._log(held, "failed", fault)
        return fault

    def _stopped(self, held: Held) -> Fault:
        fault = faults.stopped(held.stop, held.timeout)
        self._log(held, "stopped", fault)
        return fault

    def _log(
        self, held: Held, event: str, fault: Fault | None, ended: float | None = None, at: str | None = None
    ) -> None:
        claimed = held.claimed
        facts: dict[str, Any] = {
            "job_id": claimed.id,
            "kind": claimed.kind,
            "attempt": claimed.attempt,
            "correlation_id": claimed.correlation_id,
            "duration": round((ended or now()) - held.started, 6),
        }
        if fault is None:
            log.info(event, **facts)
            return
        if at is not None:
            facts["at"] = at
        log.warning(event, outcome=fault.outcome, error=fault.error, **facts)


def _call(function: Callable[..., Any], job: SyncJob[Any]) -> BaseException | None:
    """Run a handler in this thread; its exception is returned, as a future cannot carry every kind."""
    try:
        faults.check_ran(function(job))
    except BaseException as error:  # noqa: BLE001 - SystemExit from a handler is a failed attempt, not an exit
        return error
    return None


@types.coroutine
def _stepped(
    coroutine: Coroutine[Any, Any, Any], cells: memoryview, token: int, deadline: int
) -> Generator[Any, Any, None]:
    """Run a handler's coroutine, writing on the board whose code the loop is in."""
    value: Any = None
    thrown: BaseException | None = None
    try:
        while True:
            cells[CURRENT_DEADLINE] = deadline
            cells[CURRENT] = token
            try:
                awaited = coroutine.send(value) if thrown is None else coroutine.throw(thrown)
            except StopIteration:
                return
            cells[CURRENT] = 0
            value = thrown = None
            try:
                value = yield awaited
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:  # noqa: BLE001 - it is the handler's to handle
                thrown = error
    finally:
        cells[CURRENT] = 0


async def _absorb_cancellation() -> None:
    """Take a cancellation that was meant for the handler, should it arrive only now."""
    task = asyncio.current_task()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    while task is not None and task.cancelling():
        task.uncancel()
