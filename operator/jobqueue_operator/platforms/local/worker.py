"""One worker of this machine: a name that outlives its process, like a pod whose container is started again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobqueue_operator.planner.facts import Phase, WorkerFacts
from jobqueue_operator.platforms.local.backoff import CrashBackoff

if TYPE_CHECKING:
    from jobqueue_operator.platforms.local.process import WorkerProcess
    from jobqueue_operator.platforms.local.template import Template
    from jobqueue_operator.platforms.local.turns import Turn


SILENT = 30.0
"""Seconds without a heartbeat after which a worker is suspected, and then as many again until it is killed."""


@dataclass(slots=True)
class Worker:
    """What the platform knows of it, and what it is to become."""

    name: str
    template: Template
    uid: str
    backoff: CrashBackoff = field(default_factory=CrashBackoff)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    process: WorkerProcess | None = None
    started: bool = False
    """Whether its first process was started; until then it waits for its turn."""
    turn: Turn | None = None
    """Held while it comes up."""
    retired: bool = False
    """Whether the queue fences it: then it is not one of the workers that a plan asks for."""
    restarts: int = 0
    last_error: str = ""
    silent_since: float | None = None
    """Monotonic seconds since when every look found it silent."""
    killed: bool = False
    task: asyncio.Task[None] | None = None

    @property
    def phase(self) -> Phase:
        """Where it is in its life. That it is ready or retired only the queue knows."""
        if self.stopping.is_set():
            return Phase.DRAINING
        return Phase.STARTING if self.process is not None or not self.started else Phase.BACKOFF

    def facts(self) -> WorkerFacts:
        """Return what a planner is told of it."""
        return WorkerFacts(
            name=self.name,
            class_=self.template.class_,
            phase=self.phase,
            revision=self.template.revision,
            age=self.process.age if self.process is not None else 0.0,
            restarts=self.restarts,
            last_error=self.last_error,
        )

    def is_frozen(self, silent_for: float | None, now: float) -> bool:
        """Whether its process runs and gives no sign of life; `now` in monotonic seconds.

        It must be found silent at every look for a while: after the database was away, all workers are, for a moment.
        """
        if self.process is None or silent_for is None or silent_for < SILENT:
            self.silent_since = None
            return False
        if self.silent_since is None:
            self.silent_since = now
        return now - self.silent_since >= SILENT

    def note(self, phase: Phase) -> None:
        """Take in what the queue knows of it. One that is not up, or drains, it tells nothing of."""
        if phase is Phase.RETIRED:
            self.retired = True
        elif phase is Phase.READY:
            self.retired = False
        if phase in {Phase.READY, Phase.RETIRED} and self.turn is not None:
            self.turn.end()
