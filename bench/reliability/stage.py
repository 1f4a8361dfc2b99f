"""A campaign's stage: a server, a database, jobs of mixed kinds, and workers that are started again when they die."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from bench.reliability import ROOT
from jobqueue import queue
from services.databases import Factory
from services.postgres import Server
from services.processes import Process
from services.workers import CLASS, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

T = TypeVar("T")


class Crew(Worker):
    """A worker under the name that the queue knows it by."""

    def __init__(self, name: str, *given: Any, **settings: Any) -> None:
        self.name = name
        super().__init__(*given, worker_name=name, **settings)

    def stop_all(self) -> list[int]:
        """SIGSTOP every process of the worker; one that ends meanwhile, as children do, is passed over."""
        frozen: list[int] = []
        while more := [pid for pid in self.tree() if pid not in frozen]:
            for pid in more:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            frozen += more
        return frozen

    @staticmethod
    def continue_all(frozen: list[int]) -> None:
        """SIGCONT those that are left."""
        for pid in frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


MIX = {"async": 0.55, "deferred": 0.15, "thread": 0.2, "process": 0.05, "retry": 0.05}
MAX_ATTEMPTS = 50  # suspects go first, so that many faults may meet one job; none should use its attempts up
_PAUSE = 0.02  # seconds between two looks


class Stage:
    """Everything of one campaign; a context manager that leaves nothing behind."""

    def __init__(self, seed: int, *, lease: float = 3.0, server: Server | None = None) -> None:
        self.random = random.Random(seed)  # noqa: S311 - a campaign must be repeatable
        self.restarted = 0
        self.jobs = 0
        self.workers: list[Crew] = []
        self._settings: dict[str, Any] = {}
        self._processes: list[Process] = []
        self._folder = Path(tempfile.mkdtemp(prefix="jobqueue-reliability-"))
        self._own = server is None
        self.server = server or Server("18")
        self.server.start()
        self._factory = factory = Factory(self.server)
        if self._own:
            factory.prepare()
        self.database = factory.migrated()
        self.connection = self.database.connect()
        self.connection.execute("CREATE TABLE public.effect (job_id bigint, attempt int)")
        settings = {"lease_seconds": lease, "timeout_seconds": 20, "max_attempts": MAX_ATTEMPTS}
        queue.set_class(self.connection, None, CLASS, {**settings, "backoff_initial_seconds": 0.1})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for process in self._processes:
            process.close()
        self.connection.close()
        if self._own:
            self.server.destroy()
        else:
            self._factory.drop(self.database)
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- load ---

    def load(self, number: int, *, mix: Mapping[str, float] = MIX, seconds: tuple[float, float] = (0.0, 0.02)) -> None:
        """Enqueue `number` jobs, kinds drawn by their weights, each lasting between `seconds`."""
        kinds = self.random.choices(list(mix), weights=list(mix.values()), k=number)
        for at in range(0, number, 5000):
            jobs = [
                queue.NewJob(CLASS, kind, {"seconds": round(self.random.uniform(*seconds), 4)})
                for kind in kinds[at : at + 5000]
            ]
            queue.enqueue_many(self.connection, jobs)
        self.jobs += number

    def finished(self) -> int:
        """How many jobs have ended in any way."""
        return int(self.value("SELECT count(*) FROM jobqueue.outcome"))

    def value(self, query: str, *params: Any) -> Any:
        """First column of the first row; a connection that a fault took is opened again."""
        while True:
            try:
                row = self.connection.execute(query, params).fetchone()
            except psycopg.OperationalError:
                if not self.connection.closed and not self.connection.broken:
                    raise
                self.connect()
            else:
                return None if row is None else row[0]

    def connect(self) -> None:
        """Open the campaign's own connection again."""
        self.connection.close()
        self.connection = self.database.connect()

    # --- workers ---

    def staff(self, number: int, **settings: Any) -> None:
        """Start `number` workers with these settings, and wait until they are ready."""
        self._settings = {"concurrency": 8, "prefetch": 8, **settings}
        self.workers += [self.start() for _ in range(number)]
        for worker in self.workers:
            worker.until_ready(within=60)

    def start(self) -> Crew:
        """Start one worker more, with a name of its own."""
        name = f"w{len(self._processes)}"
        folder = self._folder / name
        folder.mkdir()
        settings = {"app": "bench.reliability.app:app", **self._settings}
        return Crew(name, self._run, self.database, folder, ROOT, **settings)

    def _run(self, *command: str | Path, **options: Any) -> Process:
        process = Process(*command, **options)
        self._processes.append(process)
        return process

    def mend(self) -> None:
        """Replace the workers that have died."""
        for at, worker in enumerate(self.workers):
            if worker.process.code is not None:
                self.restarted += 1
                self.workers[at] = self.start()

    # --- time ---

    def until(self, condition: Callable[[], T | None], what: str, *, within: float = 300.0) -> T:
        """Wait for something true while dead workers are replaced; TimeoutError after `within` seconds."""
        end = time.monotonic() + within
        while not (value := condition()):
            if time.monotonic() > end:
                raise TimeoutError(f"{what}: not within {within:g} s; {self.finished()} of {self.jobs} jobs have ended")
            self.mend()
            time.sleep(_PAUSE)
        return value

    def moments(self, faults: int) -> list[int]:
        """Draw the numbers of finished jobs at which faults happen, spread over the first nine tenths."""
        step = self.jobs * 0.9 / max(faults, 1)
        return [int((at + self.random.random()) * step) for at in range(faults)]

    def until_finished(self, number: int | None = None, *, within: float = 300.0) -> None:
        """Wait until so many jobs (all of them) have ended."""
        goal = self.jobs if number is None else number
        self.until(lambda: self.finished() >= goal, f"{goal} jobs finished", within=within)

    def dither(self, longest: float = 0.05) -> None:
        """Let a random bit of time pass: the moment of a fault must not be that of our own query."""
        time.sleep(self.random.uniform(0, longest))

    @staticmethod
    def pause(seconds: float = _PAUSE) -> None:
        """Let time pass where nothing can be waited for: a freeze, a query on its way."""
        time.sleep(seconds)
