"""The platform of one machine: keeps worker processes, starts those that died again, ends them gently."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from jobqueue_operator.platforms import Event, Happening
from jobqueue_operator.platforms.last_words import last_words
from jobqueue_operator.platforms.local import survivors
from jobqueue_operator.platforms.local.backoff import LOOPING
from jobqueue_operator.platforms.local.process import Launch, WorkerProcess
from jobqueue_operator.platforms.local.tail import tail
from jobqueue_operator.platforms.local.turns import Turns
from jobqueue_operator.platforms.local.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobqueue_operator.planner.facts import WorkerFacts
    from jobqueue_operator.planner.plan import Plan, Pool
    from jobqueue_operator.platforms.local.template import Template

EVENTS_MOST = 1_000
"""Events kept until they are fetched; older ones are dropped."""
LOGS_MOST = 200
"""Log files kept in the state directory; the oldest go first."""
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # a pod's suffix: no vowels, nothing that looks alike


class LocalPlatform:
    """Runs workers as processes. `templates` says, per class, what they are made from; it may be replaced.

    `state` is a directory for logs and for what the next run must know. One platform a directory at a time.
    """

    def __init__(self, state: Path, templates: Mapping[str, Template]) -> None:
        self.templates = templates
        self._logs = state / "logs"
        self._records = state / "workers"
        # A socket's path may have some 100 characters: a state directory's own path can be longer.
        self._sockets = Path(tempfile.mkdtemp(prefix="jobqueue-"))
        self._workers: dict[str, Worker] = {}
        self._events: deque[Event] = deque(maxlen=EVENTS_MOST)
        self._releasing = False
        self._turns = Turns()

    async def recover(self) -> list[str]:
        """Drain what an earlier run left behind and return the names of those workers. Old logs go."""
        prune_logs(self._logs)
        left = await asyncio.to_thread(survivors.end_all, self._records)
        return [record.name for record in left]

    async def observe(self) -> tuple[WorkerFacts, ...]:
        """Return every worker. One whose process runs is `Starting` here: only the queue knows that it is ready."""
        return tuple(worker.facts() for worker in self._workers.values())

    def events(self) -> list[Event]:
        """Return what happened since the last call."""
        found = list(self._events)
        self._events.clear()
        return found

    async def apply(self, plan: Plan, workers: Sequence[WorkerFacts] = ()) -> None:
        """Stop victims, take the rollout's step, and start what is missing; without waiting for any of it."""
        now = time.monotonic()
        for seen in workers:
            worker = self._workers.get(seen.name)
            if worker is None:
                continue
            worker.note(seen.phase)
            if worker.is_frozen(seen.silent_for, now) and worker.process is not None:
                # As a kubelet does when a probe is not answered; what it held is lost when its leases end.
                worker.silent_since = None
                worker.process.kill()
        if not workers:
            for worker in self._workers.values():
                worker.silent_since = None
        for pool in plan.pools:
            for victim in pool.stop:
                self._end(victim.worker)
            if pool.rollout is not None and pool.rollout.replace is not None:
                self._end(pool.rollout.replace.worker)
            self._start_missing(pool)

    async def close(self) -> None:
        """Drain every worker, all at once, and return when none is left."""
        for worker in self._workers.values():
            worker.stopping.set()
        tasks = [w.task for w in self._workers.values() if w.task is not None]
        if tasks:
            await asyncio.gather(*tasks)
        shutil.rmtree(self._sockets, ignore_errors=True)

    def release_now(self) -> None:
        """Have every worker that drains give its running jobs back at once."""
        self._releasing = True
        for worker in self._workers.values():
            if worker.process is not None:
                worker.process.release_now()

    def process_ids(self) -> dict[str, int]:
        """Return the process id of each worker that runs, by name."""
        return {w.name: w.process.pid for w in self._workers.values() if w.process is not None}

    def _end(self, name: str) -> None:
        if name in self._workers:
            self._workers[name].stopping.set()

    def _start_missing(self, pool: Pool) -> None:
        beside = pool.kept.workers if pool.kept is not None and pool.kept.beside else ()
        exist = sum(
            1
            for w in self._workers.values()
            if w.template.class_ == pool.class_ and not w.retired and w.name not in beside
        )
        template = self.templates.get(pool.class_)
        for _ in range(pool.replicas - exist if template is not None else 0):
            assert template is not None  # noqa: S101 - for the type checker
            suffix = "".join(secrets.choice(_ALPHABET) for _ in range(5))
            worker = Worker(f"{pool.class_}-{suffix}", template, uuid4().hex)
            self._workers[worker.name] = worker
            worker.task = asyncio.create_task(self._keep(worker), name=worker.name)

    async def _keep(self, worker: Worker) -> None:
        """Keep one worker running until it is asked to go, or dies when it is retired: then nobody misses it."""
        try:
            while not worker.stopping.is_set():
                died_after = await self._run_in_turn(worker)
                if died_after is None or worker.retired:
                    break
                delay = worker.backoff.after_death(died_after)
                worker.restarts += 1
                if worker.backoff.early_deaths == LOOPING:
                    self._tell(worker, Happening.LOOPING, worker.last_error)
                if delay:
                    await _wait(worker.stopping, delay)
        finally:
            if worker.process is not None:
                worker.process.kill()
            survivors.erase(self._records, worker.name)
            self._workers.pop(worker.name, None)
            if worker.killed:
                self._tell(worker, Happening.KILLED, "killed when its grace was over")
            elif worker.stopping.is_set():
                self._tell(worker, Happening.DRAINED, "drained")
            else:
                self._tell(worker, Happening.GONE, worker.last_error)

    async def _run_in_turn(self, worker: Worker) -> float | None:
        worker.turn = await self._turns.take(unless=worker.stopping)
        if worker.turn is None:
            return None
        try:
            return await self._run_once(worker)
        finally:
            worker.turn.end()

    async def _run_once(self, worker: Worker) -> float | None:
        """Run its process until it ends. Return how long it lived, or None when it ended because it was asked to."""
        log = self._logs / f"{worker.name}.log"
        since = log.stat().st_size if log.exists() else 0
        worker.started = True
        try:
            process = await WorkerProcess.start(self._launch(worker, log))
        except OSError as error:
            worker.last_error = f"cannot be started: {error}"
            self._tell(worker, Happening.DIED, worker.last_error)
            return 0.0
        worker.process = process
        if self._releasing:
            process.release_now()
        survivors.write(
            self._records, worker.name, worker.template.class_, worker.uid, process.pid, worker.template.grace
        )
        self._tell(worker, Happening.STARTED, f"process {process.pid}")
        ended = asyncio.ensure_future(process.wait())
        stopping = asyncio.ensure_future(worker.stopping.wait())
        try:
            await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        if not ended.done():
            await process.stop()
        status = await ended
        worker.process = None
        if worker.stopping.is_set():
            worker.killed = process.killed
            return None
        worker.last_error = last_words(tail(log, since=since))
        if worker.retired:
            worker.last_error = _cause(status, worker.last_error)
        else:
            self._tell(worker, Happening.DIED, _cause(status, worker.last_error))
        return process.age

    def _launch(self, worker: Worker, log: Path) -> Launch:
        template = worker.template
        return Launch(
            command=template.command,
            pre_stop=template.drain_command,
            environment={
                **template.environment,
                "JOBQUEUE_WORKER_NAME": worker.name,
                "JOBQUEUE_DRAIN_SOCKET": str(self._sockets / worker.name),
            },
            directory=template.directory,
            log=log,
            uid=worker.uid,
            grace=template.grace,
        )

    def _tell(self, worker: Worker, happening: Happening, message: str) -> None:
        self._events.append(Event(happening, worker.template.class_, worker.name, message))


def prune_logs(folder: Path) -> None:
    """Remove the oldest log files beyond `LOGS_MOST`."""
    files = sorted(folder.glob("*.log*"), key=lambda f: f.stat().st_mtime, reverse=True) if folder.is_dir() else []
    for file in files[LOGS_MOST:]:
        file.unlink(missing_ok=True)


def _cause(status: int, said: str) -> str:
    how = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
    return f"{how}: {said}" if said else how


async def _wait(event: asyncio.Event, seconds: float) -> None:
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({waiting}, timeout=seconds)
    finally:
        waiting.cancel()
