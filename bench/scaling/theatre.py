"""What every campaign plays with: a database, `jobqueue up` as a process, the service, load, and what was seen."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from bench.scaling import ROOT
from bench.scaling.service import Service
from jobqueue import queue
from services.databases import Factory
from services.postgres import Server
from services.processes import Process

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import LiteralString, Self

TICK = 0.5
"""Seconds between two decisions of `up` in a campaign: its scenes last a minute, not an hour."""
PAUSE = 0.1
DRAIN_WITHIN = 60.0


@dataclass(frozen=True, slots=True)
class Moment:
    """One tick of `up`: seconds since the beginning, classes by name, downstreams by name."""

    at: float
    classes: dict[str, dict[str, Any]]
    downstreams: dict[str, dict[str, Any]]


@dataclass
class Theatre:
    """A context manager that leaves nothing behind. `manifest` is YAML; the app is `jobs:app` of this folder."""

    manifest: str
    seed: int = 1
    knee: float = float("inf")
    random: random.Random = field(init=False)
    moments: list[Moment] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    enqueued: int = 0
    kills: int = 0
    server: Server | None = None
    counts: dict[str, int] = field(default_factory=dict)
    """Jobs done, jobs with more than one attempt, and attempts lost, when the scene was over."""

    def __enter__(self) -> Self:
        self.random = random.Random(self.seed)  # noqa: S311 - a campaign must be repeatable
        self.folder = Path(tempfile.mkdtemp(prefix="jobqueue-scaling-"))
        self._own = self.server is None
        self.server = self.server or Server("18")
        if self._own:
            self.server.start()
        self._factory = Factory(self.server)
        if self._own:
            self._factory.prepare()
        self.database = self._factory.migrated()
        self.connection = self.database.connect()
        self.service = Service(self.knee).__enter__()
        self.write(self.manifest)
        self.began = time.time()
        self.process = self._up()
        self._reader = threading.Thread(target=self._read, name="up-reader", daemon=True)
        self._reader.start()
        self.until(lambda: self.moments, "up's first tick", within=60)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        tree = [self.process.pid, *(child.pid for child in _children(self.process.pid))]
        if self.process.code is None:
            self.process.signal(signal.SIGTERM)
            try:
                self.process.wait(within=DRAIN_WITHIN)
            except AssertionError as late:
                self.said.append(f"up did not end: {late}")
        self.process.close()
        for pid in tree:
            if psutil.pid_exists(pid) and pid != self.process.pid:
                psutil.Process(pid).kill()
        self.service.__exit__(None, None, None)
        self.counts = {
            "done": int(self.value("SELECT count(*) FROM jobqueue.jobs WHERE status = 'done'")),
            "again": int(self.value("SELECT count(*) FROM jobqueue.jobs WHERE attempts > 1")),
            "lost": int(self.value("SELECT count(*) FROM jobqueue.attempts WHERE outcome = 'lost'")),
        }
        self.connection.close()
        assert self.server is not None  # noqa: S101 - for the type checker
        if self._own:
            self.server.destroy()
        else:
            self._factory.drop(self.database)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _up(self) -> Process:
        command = (sys.executable, "-m", "jobqueue", "up", "-f", self.folder / "jobqueue.yaml")
        options = ("--app-dir", ROOT / "bench" / "scaling", "--state-dir", self.folder / "state", "--json")
        more = ("--tick", str(TICK), "--env", f"SERVICE={self.service.address}", "--env", "PYTHONPATH")
        return Process(*command, *options, *more, env={"JOBQUEUE_DSN": self.database.direct}, cwd=self.folder)

    def _read(self) -> None:
        read = 0
        while self.process.code is None or read < len(self.process.out):
            for line in self.process.out[read:]:
                read += 1
                self._hear(line)
            time.sleep(PAUSE)

    def _hear(self, line: str) -> None:
        entry = json.loads(line)
        at = datetime.fromisoformat(entry["time"]).timestamp() - self.began
        if entry["event"] == "tick":
            classes = {row["class"]: row for row in entry["classes"]}
            downstreams = {row["downstream"]: row for row in entry["downstreams"]}
            self.moments.append(Moment(at, classes, downstreams))
        else:
            self.said.append(f"{at:7.1f} {entry['level']}: {entry['message']}")

    def write(self, manifest: str) -> None:
        """Write the manifest; `roll` has `up` read it again."""
        (self.folder / "jobqueue.yaml").write_text(manifest)

    def roll(self) -> None:
        """Have `up` read the manifest again and replace every worker, one out, one in."""
        self.process.signal(signal.SIGHUP)

    # --- load ---

    def enqueue(self, class_: str, number: int, *, kind: str = "call", **payload: Any) -> None:
        """Enqueue jobs in one call."""
        if number > 0:
            queue.enqueue_many(self.connection, [queue.NewJob(class_, kind, payload) for _ in range(number)])
            self.enqueued += number

    def trickle(self, class_: str, rate: Callable[[float], float], lasting: float, **payload: Any) -> None:
        """Enqueue for `lasting` seconds, in steps of 0.2 s, at a rate: jobs a second, by the seconds since now."""
        began = last = time.monotonic()
        owed = 0.0
        while (now := time.monotonic()) - began < lasting:
            owed += rate(now - began) * (now - last)
            last = now
            self.enqueue(class_, int(owed), **payload)
            owed -= int(owed)
            time.sleep(0.2)

    # --- looking ---

    def until(self, condition: Callable[[], object], what: str, *, within: float = 120.0) -> None:
        """Wait for something true; TimeoutError with what `up` said."""
        end = time.monotonic() + within
        while not condition():
            if self.process.code is not None:
                raise TimeoutError(f"{what}: up ended with {self.process.code}:\n{self.process.text[-3000:]}")
            if time.monotonic() > end:
                told = "\n".join([*self.said[-20:], str(self.moments[-1:])])
                raise TimeoutError(f"{what}: not within {within:g} s\n{told}")
            time.sleep(PAUSE)

    def value(self, query: LiteralString, *params: Any) -> Any:
        """First column of the first row."""
        row = self.connection.execute(query, params).fetchone()
        return None if row is None else row[0]

    def ended(self) -> int:
        """Count the jobs that have ended in any way."""
        return int(self.value("SELECT count(*) FROM jobqueue.outcome"))

    def workers(self, class_: str) -> int:
        """Return how many workers of a class there were at the last tick, in whatever state."""
        return int(self.moments[-1].classes[class_]["workers"])

    def kill_one(self) -> None:
        """Kill one worker's supervisor with SIGKILL."""
        found = [c for c in _children(self.process.pid) if "worker" in _command(c)]
        if found:
            os.kill(self.random.choice(found).pid, signal.SIGKILL)
            self.kills += 1


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=False)
    except psutil.Error:
        return []


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
