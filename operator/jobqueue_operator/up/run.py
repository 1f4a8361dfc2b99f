"""The whole of `jobqueue up`, from manifest to the last worker's end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from jobqueue.errors import JobQueueError, StaleEpoch
from jobqueue_operator.planner import draining
from jobqueue_operator.platforms.local import LocalPlatform
from jobqueue_operator.platforms.local.template import BROKER, Template, template
from jobqueue_operator.queues.database import Database
from jobqueue_operator.queues.waking import Doorbell, Waker
from jobqueue_operator.up.finish import Ending
from jobqueue_operator.up.loop import Loop
from jobqueue_operator.up.place import Place, alone, place
from jobqueue_operator.up.recording import Recording
from jobqueue_operator.up.tell import said_by_wakeup
from jobqueue_operator.up.wanted import wanted
from jobqueue_operator.workload import Workload, load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jobqueue_operator.up.report import Reporter


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line said."""

    manifest: Path
    dsn: str | None = None
    dsn_dir: Path | None = None
    listen_dsn: str | None = None
    schema: str = "jobqueue"
    ending: Ending = field(default_factory=Ending)
    state: Path = Path(".jobqueue")
    directory: Path = field(default_factory=Path.cwd)
    pass_on: tuple[str, ...] = ()
    interval: float = 1.0
    record: Path | None = None
    """Where decisions are recorded; in the state directory unless said."""


async def up(options: Options, reporter: Reporter) -> int:
    """Run a manifest's classes until told to stop, and return the exit status.

    Raises ConfigurationError before anything is started, ConnectionFailed or SchemaError when the database cannot be
    used.
    """
    found = load(options.manifest)
    options.state.mkdir(parents=True, exist_ok=True)
    stopping = asyncio.Event()
    with alone(options.state), _signals(stopping.set), _place(options, reporter) as place, said_by_wakeup(reporter):
        database = Database(place.info, options.schema, holder=f"up@{socket.gethostname()}:{os.getpid()}")
        try:
            await database.lead(may_migrate=True)
            await database.register(found.queues, found.downstreams)
            return await _Session(options, reporter, database, place, found, stopping).run()
        finally:
            await database.close()


def _place(options: Options, reporter: Reporter) -> AbstractContextManager[Place]:
    return place(
        reporter,
        dsn=options.dsn,
        dsn_dir=options.dsn_dir,
        listen_dsn=options.listen_dsn,
        schema=options.schema,
        state=options.state,
    )


@contextmanager
def _signals(stop: Callable[[], None], hang_up: Callable[[], None] | None = None) -> Iterator[None]:
    """Have these called on SIGINT and SIGTERM, and on SIGHUP. The last ones said hold."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, hang_up or stop)
    yield


class _Session:
    """One run: the platform, the loop, and what signals do to them."""

    def __init__(
        self,
        options: Options,
        reporter: Reporter,
        database: Database,
        place: Place,
        found: Workload,
        stopping: asyncio.Event,
    ) -> None:
        self._options = options
        self._reporter = reporter
        self._database = database
        self._place = place
        self._found = found
        self._generation = 0
        self._terminal = sys.stdout.isatty()
        self._tasks: set[asyncio.Task[None]] = set()
        templates = self._templates(found)
        self._platform = LocalPlatform(options.state, templates)
        self._loop = Loop(
            wanted=wanted(found, _revisions(templates)),
            platform=self._platform,
            queue=database,
            reporter=reporter,
            ending=options.ending,
            waker=Waker(database, Doorbell(place.open_listener, schema=options.schema)),
            recording=Recording(options.record or options.state / "decisions.jsonl", reporter),
            interval=options.interval,
            stopping=stopping,
        )

    async def run(self) -> int:
        """Run the loop, then drain."""
        with _signals(self._stop, self._hang_up):
            try:
                for name in await self._platform.recover():
                    self._reporter.say("warning", f"{name} was left over from an earlier run; drained")
                self._warn()
                return await self._loop.run()
            finally:
                await self._drain()

    async def _drain(self) -> None:
        self._loop.stopping.set()
        closing = asyncio.ensure_future(self._platform.close())
        said = False
        while not closing.done():
            await self._loop.show()
            if not said and not closing.done():
                self._reporter.say("info", "draining; Ctrl-C (or SIGTERM) gives running jobs back at once")
                said = True
            await asyncio.wait({closing}, timeout=self._options.interval)
        await closing
        await self._loop.show()

    def _stop(self) -> None:
        if self._loop.stopping.is_set():
            self._reporter.say("warning", "giving running jobs back")
            self._platform.release_now()
        self._loop.stopping.set()

    def _hang_up(self) -> None:
        """Restart, unless the signal says that the terminal is gone: nobody is there to stop us any more."""
        if self._terminal and not sys.stdout.isatty():
            self._stop()
            return
        task = asyncio.ensure_future(self._reload())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reload(self) -> None:
        """Read the manifest again and replace every worker, one out, one in. A bad manifest changes nothing."""
        try:
            found = load(self._options.manifest)
            await self._database.register(found.queues, found.downstreams)
        except StaleEpoch:
            return  # the next tick sees it, says it, and ends this run
        except JobQueueError as error:
            self._reporter.say("error", f"restart refused, nothing was changed: {error}")
            return
        self._generation += 1
        self._found = found
        templates = self._templates(found)
        self._platform.templates = templates
        self._loop.wanted = wanted(found, _revisions(templates))
        self._reporter.say("info", "restarting every worker, one out, one in")
        self._warn()

    def _templates(self, found: Workload) -> dict[str, Template]:
        options = self._options
        return {
            spec.name: template(
                queue,
                spec,
                database=self._place.environment,
                directory=options.directory,
                pass_on=options.pass_on,
                generation=self._generation,
            )
            for queue in found.queues
            for spec in queue.spec.classes
        }

    def _warn(self) -> None:
        for spec in self._found.classes:
            for warning in draining.warnings(spec):
                self._reporter.say("warning", f"{warning.condition}: {warning.message}")
        for queue in self._found.queues:
            if queue.spec.wakeup.type == "RabbitMQ" and BROKER not in os.environ:
                self._reporter.say("warning", f"wakeup RabbitMQ needs {BROKER} in the environment; polling until then")


def _revisions(templates: Mapping[str, Template]) -> dict[str, str]:
    return {class_: made.revision for class_, made in templates.items()}
