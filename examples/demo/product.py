"""The product as its user has it: `jobqueue up` as a process that is read line by line, and other commands."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from jobqueue_operator.manifest import load_manifests
from jobqueue_operator.resources import JobQueue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobqueue_operator.resources import ClassSpec

HERE = Path(__file__).parent
MANIFEST = HERE / "jobqueue.yaml"
COMMAND = (sys.executable, "-m", "jobqueue")
COMMAND_PATIENCE = 30.0
"""Seconds that one command may take."""
DRAIN_PATIENCE = 25.0
"""Seconds that draining every worker may take; after that they are told to give their jobs back."""
UP_AT_MOST = 150
"""Seconds after which `up` ends by itself, should this process be killed and nobody stop it."""


class CommandFailed(Exception):  # noqa: N818 - reads as a fact
    """A command ended with another exit status than 0. The message holds what it said."""


@dataclass(frozen=True)
class Message:
    """Something that `up` said. `what` and `worker` are set when it is about a worker."""

    level: str
    text: str
    what: str = ""
    worker: str = ""


def classes() -> list[ClassSpec]:
    """Return the manifest's classes."""
    return [spec for m in load_manifests(MANIFEST) if isinstance(m, JobQueue) for spec in m.spec.classes]


def run(dsn: str, *arguments: str) -> str:
    """Run `jobqueue …` and return what it printed. Raises CommandFailed."""
    done = subprocess.run(  # noqa: S603 - our own command
        [*COMMAND, *arguments],
        env={**os.environ, "JOBQUEUE_DSN": dsn},
        cwd=HERE,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_PATIENCE,
        check=False,
    )
    if done.returncode != 0:
        raise CommandFailed(f"jobqueue {' '.join(arguments)}: exit status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


@dataclass
class Up:
    """A running `jobqueue up`."""

    dsn: str
    state: Path
    environment: Mapping[str, str]
    messages: list[Message] = field(default_factory=list)
    classes: Sequence[Mapping[str, Any]] = ()
    """The last tick: one entry a class."""
    most: dict[str, int] = field(default_factory=dict)
    """Workers of each class at once, at most."""
    asked: dict[str, int] = field(default_factory=dict)
    """Slots that the demand of each class asked for, at most, before any limit."""
    exit_status: int | None = None
    _process: subprocess.Popen[str] | None = None
    _seen: list[psutil.Process] = field(default_factory=list)

    def start(self) -> None:
        """Start it."""
        command = [*COMMAND, "up", "-f", str(MANIFEST), "--app-dir", str(HERE), "--state-dir", str(self.state)]
        command += ["--tick", "0.5", "--for", str(UP_AT_MOST), "--json"]
        for name, value in self.environment.items():
            command += ["--env", f"{name}={value}"]
        with (self.state / "up.log").open("w") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                command,
                env={**os.environ, "JOBQUEUE_DSN": self.dsn},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # the terminal's Ctrl-C is for us: we end it in its order
            )
        threading.Thread(target=self._read, args=(self._process,), name="up-reader", daemon=True).start()

    def ready(self) -> int:
        """Return how many workers are ready."""
        return sum(int(entry["workers_ready"]) for entry in self.classes)

    def count(self, class_: str) -> int | None:
        """Return how many workers a class has, in whatever state; None before the first tick."""
        return next((int(entry["workers"]) for entry in self.classes if entry["class"] == class_), None)

    def came_up(self, class_: str) -> float | None:
        """Return when the first worker process of a class was there, in seconds since the epoch; None if none is."""
        moments = []
        for record in (self.state / "workers").glob(f"{class_}-*.json"):
            with contextlib.suppress(OSError):
                moments.append(record.stat().st_mtime)
        return min(moments, default=None)

    def wanted(self) -> int:
        """Return how many workers the plan wants."""
        return sum(int(entry["workers_wanted"]) for entry in self.classes)

    def workers(self, what: str) -> set[str]:
        """Return the names of the workers to which this has happened: started, drained, died."""
        return {message.worker for message in list(self.messages) if message.what == what}

    def complaint(self) -> str:
        """Return why it cannot go on, or nothing while it does."""
        looping = [message.text for message in list(self.messages) if message.what == "looping"]
        if looping:
            return looping[0]
        if self._process is None or self._process.poll() is None:
            return ""
        said = [m.text for m in self.messages if m.level == "error"]
        said += (self.state / "up.log").read_text(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(said) if line.strip()), "it said nothing")
        return f"jobqueue up ended with exit status {self._process.returncode}: {last}"

    def restart_workers(self) -> None:
        """Ask for a rolling restart, as a new image would in a cluster."""
        self._signal(signal.SIGHUP)

    def kill_worker(self, name: str) -> int:
        """Kill one worker's first process with SIGKILL, and return its process id. KeyError when it has none."""
        record = self.state / "workers" / f"{name}.json"
        if not record.exists():
            raise KeyError(name)
        pid = int(json.loads(record.read_text())["pid"])
        os.kill(pid, signal.SIGKILL)
        return pid

    def notice_processes(self) -> None:
        """Remember every process below it, to see later that none is left."""
        if self._process is not None:
            with contextlib.suppress(psutil.Error):
                known = {(p.pid, p.create_time()) for p in self._seen}
                for child in psutil.Process(self._process.pid).children(recursive=True):
                    with contextlib.suppress(psutil.Error):
                        if (child.pid, child.create_time()) not in known:
                            self._seen.append(child)

    def stop(self) -> None:
        """Drain every worker and end; insist when that takes too long. What is left then is killed."""
        process = self._process
        if process is None:
            return
        self.notice_processes()
        for patience in (DRAIN_PATIENCE, 5.0):
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.exit_status = process.wait(patience)
                break
        else:
            process.kill()
            self.exit_status = process.wait()

    def hurry(self) -> None:
        """Have running jobs given back at once, when it is draining already."""
        self._signal(signal.SIGTERM)

    def survivors(self) -> list[str]:
        """Return the processes that were seen below it and are still there."""
        _, alive = psutil.wait_procs(self._seen, timeout=2)
        return [f"{p.pid}" for p in alive if _lives(p)]

    def kill_survivors(self) -> None:
        """Leave no process behind, whatever happened."""
        for process in self._seen:
            with contextlib.suppress(psutil.Error):
                if _lives(process):
                    process.kill()
        psutil.wait_procs(self._seen, timeout=2)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _note(self, class_: str, workers: int, terms: Mapping[str, float] | None) -> None:
        self.most[class_] = max(self.most.get(class_, 0), workers)
        if terms is not None:
            slots = int(max(terms["need"], terms["up"]) * terms["slots"])
            self.asked[class_] = max(self.asked.get(class_, 0), slots)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None  # noqa: S101 - for the type checker: it is a pipe
        for line in process.stdout:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if entry.get("event") == "tick":
                self.classes = entry["classes"]
                for seen in entry["classes"]:
                    self._note(seen["class"], int(seen["workers"]), seen["terms"])
            elif entry.get("event") == "message":
                self.messages.append(
                    Message(entry["level"], entry["message"], entry.get("what", ""), entry.get("worker", ""))
                )


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
