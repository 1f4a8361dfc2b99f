"""One sweeper for the deadlines of all running jobs: a timer for each would cost more than a short job.

Stops a job at its timeout, before its lease ends, when it is cancelled, and at the end of a drain: an async handler is
cancelled, a process of its own killed with its group, a thread marked stuck (nothing can stop it: the supervisor
replaces the whole runner).
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import structlog

from jobqueue.worker.board import TICK
from jobqueue.worker.clock import now

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobqueue.worker.board import Board
    from jobqueue.worker.workload import Held, Stop, Workload

log = structlog.get_logger("jobqueue.worker")

PERIOD = 0.05  # seconds: how late a timeout may be
NUDGE = 1.0  # seconds between cancellations of a handler that swallows them
STUBBORN = 10.0  # seconds after which such a handler counts as stuck
MARGIN = 0.1  # share of the lease, at most MOST_MARGIN seconds, at which a job is stopped ahead of its end
MOST_MARGIN = 1.0


class Deadlines:
    """Ends what must not run on."""

    def __init__(self, workload: Workload, board: Board, lease: float, on_stuck: Callable[[Held], None]) -> None:
        self._workload = workload
        self._board = board
        self._margin = min(MARGIN * lease, MOST_MARGIN)
        self._on_stuck = on_stuck

    async def run(self) -> None:
        """Look at every running job each PERIOD, for ever."""
        cells = self._board.cells
        while True:
            cells[TICK] = time.monotonic_ns()
            moment = now()
            for held in self._workload.running:
                if held is None or not held.deadline:
                    continue
                if held.stop is not None:
                    self._nudge(held, moment)
                elif moment > held.deadline:
                    self.stop(held, "timeout")
                elif moment > held.lease_end - self._margin:
                    self.stop(held, "lost")
            await asyncio.sleep(PERIOD)

    def stop(self, held: Held, why: Stop) -> None:
        """Stop a running job, as far as its kind can be."""
        if held.stop is not None or held.acked:
            return
        if held.committing and why != "lost":
            return  # its COMMIT is on its way: the next look will find it ended
        if held.handler is not None and held.kill is None and held.handler.mode == "thread":
            if why == "cancel":
                return  # its `job.cancelled` says so
            if why == "drain":
                return  # the process ends
            held.stop = why
            self._stuck(held)
            return
        held.stop = why
        held.nudged = now()
        self._interrupt(held)

    @staticmethod
    def _interrupt(held: Held) -> None:
        if held.kill is not None:
            held.kill()
        elif held.task is not None:
            held.task.cancel()

    def _nudge(self, held: Held, moment: float) -> None:
        """Cancel again a handler that swallowed it; give up on one that does so for long."""
        if held.stuck or held.committing:
            return
        since = moment - held.nudged
        if since > STUBBORN:
            self._stuck(held)
        elif held.kill is None and int(since / NUDGE) > int((since - PERIOD) / NUDGE):
            self._interrupt(held)

    def _stuck(self, held: Held) -> None:
        held.stuck = True
        claimed = held.claimed
        log.error(
            "stuck: the handler cannot be stopped; this runner will be replaced",
            job_id=claimed.id,
            kind=claimed.kind,
            attempt=claimed.attempt,
            correlation_id=claimed.correlation_id,
            why=held.stop,
        )
        self._on_stuck(held)
