"""Child processes of the runner: one for each slot that needs one, reused from job to job, killed with its group.

Never a shared pool: there, one death breaks every job. A child that dies takes its own attempt and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

import structlog

from jobqueue.worker import faults
from jobqueue.worker.clock import now
from jobqueue.worker.killing import kill_tree
from jobqueue.worker.pipe import Pipe

if TYPE_CHECKING:
    from jobqueue.worker.faults import Fault
    from jobqueue.worker.workload import Held

log = structlog.get_logger("jobqueue.worker")

START = 60.0  # seconds for a child to start and import the app


class Child:
    """One process, and the pipe to it."""

    def __init__(self, process: asyncio.subprocess.Process, channel: Pipe) -> None:
        self.process = process
        self._channel = channel

    @classmethod
    async def spawn(cls, app: str, start: dict[str, Any]) -> Child:
        """Start a process; it imports the app before its first job."""
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "jobqueue.worker.child",
                "--app",
                app,
                "--pipe",
                str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        channel = await Pipe.over(ours)
        channel.send(type="start", **start)
        return cls(process, channel)

    def kill(self) -> None:
        """Kill it with its group and descendants."""
        if self.process.returncode is None:
            kill_tree(self.process.pid)

    def renewed(self, lease_end: float) -> None:
        """Tell its running job when the lease ends now."""
        self._channel.send(type="lease", end=lease_end)

    async def run(self, held: Held) -> dict[str, Any] | None:
        """Run one job there; None when the process died."""
        self._channel.send(type="job", **_to_wire(held))
        return await self.receive()

    async def receive(self) -> dict[str, Any] | None:
        """Return what it says next; None when it died."""
        frame = await self._channel.receive()
        return None if frame is None else frame[1]

    async def ended(self) -> str:
        """Wait for its death and say how it died."""
        self.kill()
        code = await self.process.wait()
        self._channel.close()
        if code >= 0:
            return f"its child process exited with status {code}"
        with contextlib.suppress(ValueError):
            return f"its child process was killed by {signal.Signals(-code).name}"
        return f"its child process was killed by signal {-code}"


class Children:
    """A child for each slot, made when first needed."""

    def __init__(self, app: str, start: dict[str, Any], slots: int) -> None:
        self._app = app
        self._start = start
        self._by_slot: list[Child | None] = [None] * slots

    async def run(self, index: int, held: Held) -> Fault | None:
        """Run a job in the slot's child. Its death spends this attempt and touches no other job."""
        child = self._by_slot[index]
        answer: dict[str, Any] | None = {"type": "ready"}
        if child is None or child.process.returncode is not None:
            child = self._by_slot[index] = await Child.spawn(self._app, self._start)
            held.kill = child.kill
            # Importing the app is not the handler's time.
            held.deadline = now() + START
            answer = await child.receive()
            held.started = now()
            held.deadline = held.started + held.timeout
        held.kill, held.tell = child.kill, child.renewed
        if held.stop is not None:
            child.kill()
        if answer is not None and answer["type"] == "ready":
            answer = await child.run(held)
        held.kill = held.tell = None
        if answer is None:
            self._by_slot[index] = None
            how = await child.ended()
            return self._died(held, how)
        if held.stop is not None or (held.handler is not None and held.handler.mode != "process"):
            # It was being killed as it answered, or it was made for a suspect alone.
            self._by_slot[index] = None
            await child.ended()
        if answer["type"] == "fatal":
            self._by_slot[index] = None
            return faults.Fault("retry", f"its child process cannot start: {answer['error']}"[: faults.LONGEST_ERROR])
        held.acked = answer.get("acked", False)
        return _fault(held, answer)

    def kill_all(self) -> None:
        """Kill every child, at the runner's own end."""
        for child in self._by_slot:
            if child is not None:
                child.kill()

    @staticmethod
    def _died(held: Held, how: str) -> Fault:
        if held.stop is not None:
            return faults.stopped(held.stop, held.timeout)
        claimed = held.claimed
        fault = faults.worker_lost(how)
        log.error(
            "failed",
            job_id=claimed.id,
            kind=claimed.kind,
            attempt=claimed.attempt,
            correlation_id=claimed.correlation_id,
            outcome=fault.outcome,
            error=fault.error,
        )
        return fault


def _fault(held: Held, answer: dict[str, Any]) -> Fault | None:
    if answer["type"] == "done":
        return None
    fault = faults.from_wire(answer["fault"])
    claimed = held.claimed
    log.warning(
        "raised after its acknowledgement; the job is done and not retried" if held.acked else "failed",
        job_id=claimed.id,
        kind=claimed.kind,
        attempt=claimed.attempt,
        correlation_id=claimed.correlation_id,
        outcome=fault.outcome,
        error=fault.error,
        at=answer.get("at"),
    )
    return fault


def _to_wire(held: Held) -> dict[str, Any]:
    claimed = held.claimed._asdict()
    for name in ("leased_until", "enqueued_at", "due_at"):
        claimed[name] = claimed[name].isoformat()
    return {"claimed": claimed, "end": held.lease_end}
