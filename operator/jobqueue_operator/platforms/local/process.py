"""One worker process: started in a session of its own, and ended as a kubelet ends a container.

stop ─► preStop (`jobqueue drain`, blocks) ─► SIGTERM ─► SIGKILL when the grace period, counted from the
beginning, is over; to whatever is left of the worker, its children included.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

POD_UID = "JOBQUEUE_POD_UID"
"""Marks every process of one worker, however they are related."""
LAST_CHANCE = 2.0
"""Seconds between SIGTERM and SIGKILL when preStop has used the grace period up; a kubelet grants the same."""
RELEASE = 5.0
"""Seconds to give jobs back after «release now»."""
REPEAT = 0.2
"""Seconds between two SIGTERMs that mean «release now»."""
LOG_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything needed to start one worker."""

    command: Sequence[str]
    pre_stop: Sequence[str]
    environment: Mapping[str, str]
    directory: Path
    log: Path
    uid: str
    grace: float


class WorkerProcess:
    """A running worker. `stop` and `release_now` may be called at any time, and more than once."""

    def __init__(self, launch: Launch, process: asyncio.subprocess.Process) -> None:
        self.launch = launch
        self.started_at = time.monotonic()
        self.killed = False
        self._process = process
        self._release = asyncio.Event()
        self._exited = asyncio.ensure_future(process.wait())

    @classmethod
    async def start(cls, launch: Launch) -> WorkerProcess:
        """Start it. OSError when the command cannot be run at all."""
        launch.log.parent.mkdir(parents=True, exist_ok=True)
        if launch.log.exists() and launch.log.stat().st_size > LOG_BYTES:
            launch.log.replace(launch.log.with_suffix(".log.1"))
        with launch.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *launch.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**launch.environment, POD_UID: launch.uid},
                cwd=launch.directory,
                start_new_session=True,  # the terminal's Ctrl-C is for us, not for the workers
            )
        return cls(launch, process)

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        return self._process.pid

    @property
    def age(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started_at

    async def wait(self) -> int:
        """Wait for its end and return the exit status (negative: the signal). Leaves nothing of it running."""
        status = await asyncio.shield(self._exited)
        kill_left(self.launch.uid)
        return status

    async def stop(self) -> None:
        """Run the stop sequence and return when the process is gone. `killed` says whether it took SIGKILL."""
        deadline = time.monotonic() + self.launch.grace
        pre_stop = await self._pre_stop()
        if pre_stop is not None:
            await self._wait_for(pre_stop, seconds=self.launch.grace)
            if pre_stop.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    pre_stop.kill()
            await pre_stop.wait()
        self._signal(signal.SIGTERM)
        left = max(deadline - time.monotonic(), LAST_CHANCE)
        if not self._release.is_set():
            await self._wait_for(None, seconds=left)
        if self._release.is_set():
            await self._insist()
        if not self._exited.done():
            self.killed = True
            self.kill()
        await self.wait()

    def release_now(self) -> None:
        """Have running jobs given back instead of waiting for them."""
        self._release.set()

    def kill(self) -> None:
        """SIGKILL, to the supervisor and to whatever else is marked as this worker's."""
        self._signal(signal.SIGKILL)
        kill_left(self.launch.uid)

    async def _pre_stop(self) -> asyncio.subprocess.Process | None:
        # A preStop that cannot run is no reason to wait: SIGTERM alone does the same.
        if self._exited.done() or self._release.is_set():
            return None
        with self.launch.log.open("ab") as log, contextlib.suppress(OSError):
            return await asyncio.create_subprocess_exec(
                *self.launch.pre_stop,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(self.launch.environment),
                cwd=self.launch.directory,
                start_new_session=True,
            )
        return None

    async def _insist(self) -> None:
        """Repeat SIGTERM, whose second one means «release now»: two in one moment arrive as one."""
        deadline = time.monotonic() + RELEASE
        while not self._exited.done() and time.monotonic() < deadline:
            self._signal(signal.SIGTERM)
            await asyncio.wait({self._exited}, timeout=REPEAT)

    async def _wait_for(self, pre_stop: asyncio.subprocess.Process | None, *, seconds: float) -> None:
        """Wait until the worker is gone, it is to release now, preStop (if any) has ended, or the time is over."""
        watched: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._release.wait())]
        if pre_stop is not None:
            watched.append(asyncio.ensure_future(pre_stop.wait()))
        try:
            await asyncio.wait([self._exited, *watched], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for future in watched:
                future.cancel()

    def _signal(self, number: signal.Signals) -> None:
        if not self._exited.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def kill_left(uid: str) -> int:
    """SIGKILL every process marked with this worker's uid; return how many there were.

    Children of a killed supervisor belong to nobody, may have sessions of their own, and would go on with jobs.
    """
    count = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(POD_UID) == uid:
                process.kill()
                count += 1
    return count
