"""The runner: the process that imports the app. Claims, dispatches and acknowledges, under the supervisor's eyes."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
import traceback
from typing import TYPE_CHECKING, Any

import structlog

from jobqueue import app as app_module
from jobqueue import connect, wakeup
from jobqueue.errors import ConfigurationError, JobQueueError
from jobqueue.worker import faults, logs
from jobqueue.worker.acks import Acks
from jobqueue.worker.board import Board
from jobqueue.worker.children import Children
from jobqueue.worker.claims import Claims
from jobqueue.worker.clock import now
from jobqueue.worker.counts import Counts
from jobqueue.worker.deadlines import Deadlines
from jobqueue.worker.killing import die_with_parent
from jobqueue.worker.link import Link, database
from jobqueue.worker.orders import Orders
from jobqueue.worker.pipe import Pipe
from jobqueue.worker.pools import AsyncPool, SyncPool
from jobqueue.worker.slots import Slots
from jobqueue.worker.workload import Workload

if TYPE_CHECKING:
    from jobqueue.app import App
    from jobqueue.worker.workload import Held

log = structlog.get_logger("jobqueue.worker")

REPORT = 0.2  # seconds between two reports to the supervisor
SILENCE = 0.5  # share of the lease without a word from the supervisor, then nothing is claimed
STOPPING = 3.0  # seconds that stopped handlers get to unwind at the end of a drain
FLUSH = 5.0  # seconds for the last acknowledgements
CONFIGURATION = 2  # exit status


class Runner:
    """The parts of one runner, and what the supervisor may ask of them."""

    def __init__(self, orders: Orders, start: dict[str, Any], app: App, board: Board, to_supervisor: Pipe) -> None:
        self._pipe = to_supervisor
        self._lease: float = start["lease"]
        info = database(orders)
        schema = orders.schema_name
        self.counts = Counts()
        self.workload = Workload(start["slots"])
        self._claim_link = Link("claims", info, on_reconnect=self._recover)
        self._ack_link = Link("acknowledgements", info)
        self._lend_async = AsyncPool(info, start["slots"])
        self._lend_sync = SyncPool(info, start["slots"])
        self._wakeup = _wakeup(orders, to_supervisor)
        self.acks = Acks(self._ack_link, self.workload, self.counts, to_supervisor, schema, log_jobs=orders.log_jobs)
        self.children = Children(orders.app, {key: start[key] for key in ("orders", "worker")}, start["slots"])
        self.claims = Claims(
            self._claim_link,
            self.workload,
            self.counts,
            to_supervisor,
            self._wakeup,
            class_name=orders.class_name,
            worker=start["worker"],
            schema=schema,
            lease=self._lease,
            prefetch=orders.prefetch,
            poll_interval=orders.poll_interval,
            limited=start["class"].get("downstream") is not None,
            log_jobs=orders.log_jobs,
        )
        self.acks.on_answer = self.claims.look_again
        self.slots = Slots(
            app,
            self.workload,
            self.acks,
            self.counts,
            board,
            self.children,
            self._lend_async,
            self._lend_sync,
            lease=self._lease,
            timeout=start["class"]["timeout_seconds"],
            log_jobs=orders.log_jobs,
        )
        self.deadlines = Deadlines(self.workload, board, self._lease, self._stuck)
        self._allowed = False
        self._heard = now()
        self._drain_deadline: float | None = None
        self._drain: asyncio.Task[None] | None = None
        self._claiming: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Work until told to drain, or until the supervisor is gone."""
        await self._wakeup.start()
        self.slots.start()
        self._claiming = asyncio.create_task(self.claims.run(), name="claims")
        parts = {
            asyncio.create_task(self.acks.run(), name="acks"),
            asyncio.create_task(self.deadlines.run(), name="deadlines"),
            asyncio.create_task(self._report(), name="report"),
            asyncio.create_task(self._listen(), name="listen"),
        }
        done, _ = await asyncio.wait({*parts, self._claiming}, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    # --- what the supervisor says ---

    async def _listen(self) -> None:
        while (frame := await self._pipe.receive()) is not None:
            message = frame[1]
            kind = message.pop("type")
            getattr(self, f"_on_{kind}")(**message)
        log.error("the supervisor is gone; this runner ends")
        self.children.kill_all()
        os._exit(1)

    def _on_pulse(self, *, active: bool, sent: float, renewed: list[int]) -> None:
        self._heard = now()
        self._allowed = active
        self.claims.permit(allowed=active)
        for token in renewed:
            held = self.workload.held.get(token)
            if held is not None:
                held.lease_end = sent + self._lease
                if held.tell is not None:
                    held.tell(held.lease_end)

    def _on_cancel(self, *, ids: list[int]) -> None:
        wanted = set(ids)
        for held in self.workload.busy():
            if held.id in wanted:
                held.cancelled = True
                self.deadlines.stop(held, "cancel")
        for held in self.workload.waiting:
            if held.id in wanted:
                held.stop = "cancel"

    def _on_lost(self, *, tokens: list[int]) -> None:
        lost = set(tokens)
        for held in self.workload.busy():
            if held.token in lost:
                self.deadlines.stop(held, "lost")
        for held in self.workload.waiting:
            if held.token in lost:
                held.stop = "lost"

    def _on_drain(self, *, deadline: float) -> None:
        self._drain_deadline = min(deadline, self._drain_deadline or deadline)
        if self._drain is None:
            self._drain = asyncio.create_task(self._wind_down(), name="drain")

    # --- what it says itself ---

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(REPORT)
            if self._allowed and now() - self._heard > SILENCE * self._lease:
                self.claims.permit(allowed=False)
            work = self.workload
            busy = work.busy()
            self._pipe.send(
                type="counts",
                counts=self.counts.drain(),
                running=len(busy),
                waiting=len(work.waiting),
                ended=work.ended,
                stuck=sum(held.stuck for held in busy),
                oldest=max((now() - held.started for held in busy), default=0.0),
                database=self._claim_link.up,
            )

    def _stuck(self, held: Held) -> None:
        """Nothing new; what runs may finish; then the supervisor replaces this process."""
        self.claims.stop()
        for each in self.workload.take_unstarted():
            self.acks.fault(each, faults.Fault("release", reason="replaced"))
        self._pipe.send(type="stuck", token=held.token, why=held.stop, timeout=held.timeout)

    async def _recover(self) -> None:
        await self.claims.recover(self._claim_link.connection)

    # --- the end ---

    async def _wind_down(self) -> None:
        work = self.workload
        self.claims.stop()
        if self._claiming is not None:
            await asyncio.wait({self._claiming}, timeout=STOPPING)
        for held in work.take_unstarted():
            self.acks.fault(held, faults.Fault("release", reason="drain"))
        while work.busy() and now() < (self._drain_deadline or 0.0):  # noqa: ASYNC110 - a deadline that may move
            await asyncio.sleep(0.02)
        for held in work.busy():
            self.deadlines.stop(held, "drain")
        give_up = now() + STOPPING
        while any(held.stop == "drain" or held.committing for held in work.busy()) and now() < give_up:
            for held in work.busy():
                self.deadlines.stop(held, "drain")
            await asyncio.sleep(0.02)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH):
                await self.acks.settled()
        await self._leave()

    async def _leave(self) -> None:
        self.children.kill_all()
        self._pipe.send(
            type="counts",
            counts=self.counts.drain(),
            running=0,
            waiting=0,
            ended=self.workload.ended,
            stuck=0,
            oldest=0.0,
            database=True,
        )
        self._pipe.send(type="drained", left=[held.token for held in self.workload.busy()])
        with contextlib.suppress(Exception):
            async with asyncio.timeout(1.0):
                await self._pipe.drain()
                await self._wakeup.stop()
                await self._claim_link.close()
                await self._ack_link.close()
                await self._lend_async.close()
        await asyncio.sleep(0)
        sys.stderr.flush()
        # Not a return: threads that run handlers would hold the interpreter.
        os._exit(0)


def _wakeup(orders: Orders, to_supervisor: Pipe) -> wakeup.Wakeup:
    info = database(orders, listen=True)
    return wakeup.create(
        orders.wakeup,
        classes=[orders.class_name],
        on_cancel=lambda job_id: to_supervisor.send(type="cancel_hint", id=job_id),
        schema=orders.schema_name,
        connect=lambda: connect.open_async(info, application_name="jobqueue listen"),
        broker=orders.broker_url,
    )


def check(app: App, orders: Orders, class_timeout: float) -> list[tuple[str, int]]:
    """Return what the app offers this class. Raises ConfigurationError when it cannot run here."""
    kinds = app.kinds(orders.class_name)
    if not kinds:
        raise ConfigurationError(f"app {orders.app} has no handler for class {orders.class_name}")
    for kind, version in kinds:
        handler = app.find(kind, version)
        if handler is not None and handler.timeout is not None and handler.timeout > class_timeout:
            raise ConfigurationError(
                f"handler {kind}@{version}: its timeout of {handler.timeout:g} s is above its class's, "
                f"{class_timeout:g} s; lower it, or raise timeout_seconds of class {orders.class_name}"
            )
    return kinds


async def serve(sock: socket.socket, board_descriptor: int) -> int:
    """Run until the supervisor ends it; returns an exit status."""
    channel = await Pipe.over(sock)
    frame = await channel.receive()
    if frame is None:
        return 1
    start = frame[1]
    orders = Orders(**start["orders"])
    logs.configure(orders, **{"class": orders.class_name, "worker": start["worker"]})
    try:
        app = app_module.load(orders.app)
        kinds = check(app, orders, start["class"]["timeout_seconds"])
        runner = Runner(orders, start, app, Board(board_descriptor, start["slots"]), channel)
    except JobQueueError as error:
        channel.send(type="fatal", error=str(error))
        await channel.drain()
        return CONFIGURATION
    gc.freeze()  # what the imports left is not looked at again
    gc.set_threshold(20_000)  # a claim makes thousands of objects that reference counts free: a tenth of the time a job
    channel.send(type="ready", kinds=kinds)
    await runner.run()
    return 1


def main() -> None:
    """Start as the supervisor's child."""
    parser = argparse.ArgumentParser(prog="jobqueue.worker.runner")
    parser.add_argument("--pipe", required=True, type=int)
    parser.add_argument("--board", required=True, type=int)
    arguments = parser.parse_args()
    die_with_parent()
    # The supervisor decides. A handler, not SIG_IGN: what is ignored would stay ignored in programs a job starts.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    sock = socket.socket(fileno=arguments.pipe)
    sock.set_inheritable(False)
    os.set_inheritable(arguments.board, False)  # noqa: FBT003 - positional only
    try:
        status = asyncio.Runner().run(serve(sock, arguments.board))
    except BaseException:  # noqa: BLE001 - a SystemExit in a task that a handler started, or a fault of ours
        traceback.print_exc()
        status = 1
    sys.stderr.flush()
    # Not a return: closing the loop would wait for handlers that do not end, and the supervisor must see this now.
    os._exit(status)


if __name__ == "__main__":
    main()
