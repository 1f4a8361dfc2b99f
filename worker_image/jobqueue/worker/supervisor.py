"""The supervisor: PID 1 of a worker. It runs no user code, so that nothing a handler does can stop it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from typing import TYPE_CHECKING, Any

import structlog

from jobqueue import migrate
from jobqueue.errors import ConfigurationError, ConnectionFailed, JobQueueError, QueueError, SchemaError
from jobqueue.wakeup.reconnect import Backoff
from jobqueue.worker import logs
from jobqueue.worker.clock import now
from jobqueue.worker.drain import DrainServer
from jobqueue.worker.health import Health, HealthServer
from jobqueue.worker.incarnation import Ending, Incarnation
from jobqueue.worker.killing import become_subreaper, kill_orphans
from jobqueue.worker.link import Link, database, first_line, once, permanent
from jobqueue.worker.membership import Membership, check_rights
from jobqueue.worker.metrics import Metrics
from jobqueue.worker.orders import Orders
from jobqueue.worker.upkeep import Upkeep

if TYPE_CHECKING:
    from jobqueue.queue import Registered
    from jobqueue.worker.settings import WorkerSettings

log = structlog.get_logger("jobqueue.worker")

OK, CONFIGURATION = 0, 2  # exit statuses
HEALTHY_AFTER = 10.0  # seconds a runner must live for its death not to count as a crash loop
LINGER = 2.0  # seconds between a drain asked for over the socket and exit, unless SIGTERM comes first
GOODBYE = 5.0  # seconds for the last words to the database
DRAIN_MARGIN = 5.0  # seconds beyond the class timeout that a drain takes by default


class Supervisor:
    """One worker: one runner after the other, until it is told to drain."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings
        self.orders = Orders.of(settings)
        self.info = database(self.orders)
        self.link = Link("supervisor", self.info)
        self.membership = Membership(self.link, settings)
        self.metrics = Metrics(settings.namespace, settings.queue, settings.class_name)
        self._incarnation: Incarnation | None = None
        self._waiting_for = "the database"
        self._drain_from: float | None = None
        self._drain_deadline: float | None = None
        self.draining = asyncio.Event()
        """Set when a drain begins."""
        self._drained = asyncio.Event()
        self._terminated = asyncio.Event()
        self._backoff = Backoff(initial=0.5, longest=30.0)

    async def run(self) -> int:
        """Work until drained; returns the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        health = await self._serve_health()
        drains = None
        if self.settings.drain_socket is not None:
            drains = DrainServer(self.settings.drain_socket, self._drain_and_wait)
            await drains.start()
        try:
            status = await self._work()
            self._drained.set()
            if drains is not None:
                asked = drains.asked
                await drains.stop()
                if asked:  # the preStop hook ends first; PID 1 must not take it away
                    await _within(self._terminated.wait(), LINGER)
            return status
        finally:
            if health is not None:
                await health.stop()
            await _within(self.link.close(), GOODBYE)
            kill_orphans(set())

    # --- one runner after the other ---

    async def _work(self) -> int:
        if not await self._unless_draining(self._reach_database()):
            return OK
        upkeep = Upkeep(self.link, self.info, self.settings.schema_name)
        background = [asyncio.create_task(upkeep.sweep()), asyncio.create_task(upkeep.maintain())]
        try:
            while not self.draining.is_set():
                self.membership.next()
                self._waiting_for = "admission"
                registered: Registered | None = await self._unless_draining(self.membership.admitted())
                if registered is None:
                    return OK
                self._waiting_for = "the app"
                incarnation = Incarnation(self, registered)
                self._incarnation = incarnation
                if self._drain_deadline is not None:
                    incarnation.drain(self._drain_deadline)
                began = now()
                ending = await incarnation.run()
                self._incarnation = None
                if ending == Ending.MISCONFIGURED:
                    return CONFIGURATION
                if ending == Ending.DIED:
                    if now() - began > HEALTHY_AFTER:
                        self._backoff.reset()
                    self._waiting_for = "the next try after a crash"
                    await _within(self.draining.wait(), self._backoff.next())
            return OK
        finally:
            for task in background:
                task.cancel()
            await asyncio.wait(background, timeout=1.0)

    async def _reach_database(self) -> bool:
        """Wait until the database answers and its schema is the right one. Raises what waiting will not mend."""
        backoff = Backoff(initial=1.0, longest=30.0)
        while True:
            try:
                async with once(self.info, "supervisor") as connection:
                    await migrate.check_async(connection, schema=self.settings.schema_name)
                    await check_rights(connection, self.settings.schema_name)
            except SchemaError:
                raise
            except (ConnectionFailed, OSError) as error:
                if permanent(error):
                    raise
                pause = backoff.next()
                log.warning("cannot reach the database", error=first_line(error), next_try_seconds=round(pause, 1))
                await asyncio.sleep(pause)
            else:
                return True

    async def _unless_draining(self, work: Any) -> Any:
        """Await `work`; None when a drain begins first."""
        task = asyncio.ensure_future(work)
        stop = asyncio.create_task(self.draining.wait())
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.wait({task})
        return None

    # --- drain ---

    def _on_signal(self) -> None:
        if self._terminated.is_set():
            self._release_now()
        self._terminated.set()
        self.drain()  # after a drain by the socket (a preStop), the first signal changes nothing

    def drain(self) -> None:
        """Stop claiming, finish, leave. Asking again changes nothing."""
        if self._drain_from is not None:
            return
        self._drain_from = now()
        timeout = self.settings.drain_timeout
        if timeout is None:
            registered = self._incarnation.registered if self._incarnation else None
            timeout = (registered.settings["timeout_seconds"] if registered else 0.0) + DRAIN_MARGIN
        self._drain_deadline = self._drain_from + timeout
        self.metrics.gauges.draining = True
        log.info("draining", seconds=timeout)
        self.draining.set()
        if self._incarnation is not None:
            self._incarnation.drain(self._drain_deadline)

    def _release_now(self) -> None:
        self._drain_deadline = now()
        log.info("releasing what still runs")
        if self._incarnation is not None:
            self._incarnation.drain(self._drain_deadline)

    async def _drain_and_wait(self) -> None:
        self.drain()
        await self._drained.wait()

    # --- health ---

    async def _serve_health(self) -> HealthServer | None:
        if self.settings.health_port is None:
            return None
        server = HealthServer(self.settings.health_port, self.health, self.metrics.text)
        try:
            port = await server.start()
        except OSError as error:
            raise ConfigurationError(
                f"health port {self.settings.health_port}: {error.strerror or error}; set JOBQUEUE_HEALTH_PORT"
            ) from None
        log.info("health endpoints", port=port)
        return server

    def health(self) -> Health:
        """Say how the worker is."""
        current = self._incarnation
        if self.draining.is_set():
            ready, why = False, "draining"
        elif current is None:
            ready, why = False, f"waiting for {self._waiting_for}"
        else:
            ready, why = current.ready()
        report = current.report if current is not None else {}
        return Health(
            ready=ready,
            why=why,
            progressing=current is None or current.progressing(),
            worker=current.registered.worker if current is not None else None,
            running=report.get("running", 0),
            waiting=report.get("waiting", 0),
            ended=report.get("ended", 0),
            oldest_running_seconds=round(report.get("oldest", 0.0), 3),
            database=self.link.up,
        )


async def _within(work: Any, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await work


def main(settings: WorkerSettings) -> int:
    """Run a worker in this process until it has drained.

    Returns an exit status: 0 drained, 2 when settings, app, class or schema are wrong (one line says which).
    """
    logs.configure(settings, **{"class": settings.class_name})
    become_subreaper()
    try:
        return asyncio.run(_run(settings))
    except (ConfigurationError, ConnectionFailed, SchemaError, QueueError) as error:
        log.critical("cannot start", error=first_line(error))  # one line, no traceback
        return CONFIGURATION
    except JobQueueError as error:
        log.critical("cannot go on", error=first_line(error))
        return CONFIGURATION
    finally:
        sys.stderr.flush()


async def _run(settings: WorkerSettings) -> int:
    return await Supervisor(settings).run()
