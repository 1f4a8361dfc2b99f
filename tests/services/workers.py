"""Real worker processes for tests: started, looked at, and killed in every way there is."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobqueue import queue
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from services.databases import Database
    from services.processes import Process

CLASS = "default"


class Worker:
    """One `jobqueue.worker` process over a test's database."""

    def __init__(
        self, run: Callable[..., Process], database: Database, folder: Path, app_folder: Path, **settings: Any
    ) -> None:
        """Start it. `settings`: the fields of WorkerSettings, by name; `app` defaults to `handlers:app`."""
        self.socket = folder / "drain.sock"
        self.port = _free_port()
        given = {
            "app": "handlers:app",
            "class": CLASS,
            "dsn": database.dsn,
            "drain_socket": self.socket,
            "health_port": self.port,
            "poll_interval": 0.2,
            "log_format": "json",
            **settings,
        }
        env = {f"JOBQUEUE_{name.upper()}": str(value) for name, value in given.items() if value is not None}
        env["TEST_DSN"] = database.direct
        env["PYTHONPATH"] = os.pathsep.join([str(app_folder), *sys.path[1:]])
        self.process = run(sys.executable, "-m", "jobqueue.worker", env=env, cwd=folder)

    # --- looking ---

    def until_ready(self, *, within: float = 20.0) -> None:
        """Wait for readiness."""

        def ready() -> bool:
            if self.process.code is not None:
                raise AssertionError(f"the worker ended with {self.process.code}:\n{self.process.text}")
            return self.get("/ready")[0] == 200

        eventually(ready, within=within, what="the worker's readiness")

    def get(self, path: str) -> tuple[int, str]:
        """GET a health path: status (0 when nothing listens) and body."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str, **labels: str) -> float:
        """Sum of the samples of a metric that have these labels."""
        total = 0.0
        for line in self.get("/metrics")[1].splitlines():
            series, _, value = line.rpartition(" ")
            wanted = all(f'{key}="{text}"' in series for key, text in labels.items())
            if wanted and series.split("{")[0] == name:
                total += float(value)
        return total

    def events(self, event: str) -> list[dict[str, Any]]:
        """The log lines of an event."""
        found = []
        for line in list(self.process.lines):
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if isinstance(said, dict) and said.get("event") == event:
                found.append(said)
        return found

    def runner(self, number: int = 1, *, within: float = 30.0) -> int:
        """The process id of the worker's n-th runner, once it has started."""
        started = eventually(
            lambda: self.events("runner started")[number - 1 : number], within=within, what=f"runner {number}"
        )
        pid: int = started[0]["pid"]
        return pid

    def tree(self) -> list[int]:
        """The worker's process and all below it."""
        found, todo = [self.process.pid], [self.process.pid]
        while todo:
            pid = todo.pop()
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                try:
                    below = [int(each) for each in task.read_text().split()]
                except OSError:
                    continue
                found += below
                todo += below
        return found

    # --- ending and hurting ---

    def terminate(self) -> None:
        """SIGTERM, as a kubelet sends it to PID 1."""
        self.process.signal(signal.SIGTERM)

    def kill_all(self) -> None:
        """SIGKILL every process of the worker, at the end of a test, and wait until all are gone."""
        pids = self.tree()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.close()
        eventually(lambda: not any(map(alive, pids)), what="the worker's processes to be gone")

    def stop_all(self) -> list[int]:
        """SIGSTOP every process of the worker; returns them for `continue_all`."""
        frozen: list[int] = []
        while more := [pid for pid in self.tree() if pid not in frozen]:
            for pid in more:
                os.kill(pid, signal.SIGSTOP)
            frozen += more
        return frozen

    @staticmethod
    def continue_all(frozen: list[int]) -> None:
        """SIGCONT."""
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)

    def drain(self, timeout: float = 30.0) -> subprocess.Popen[bytes]:
        """Ask over the socket, in a process of its own."""
        code = (
            f"import sys; from jobqueue.worker.drain import request; sys.exit(request({str(self.socket)!r}, {timeout}))"
        )
        return subprocess.Popen(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path[1:])}
        )


class Jobs:
    """Enqueues jobs for the workers of a test and sees what became of them."""

    def __init__(self, database: Database) -> None:
        """Make the tables that the handlers write to."""
        self.connection: psycopg.Connection[Any] = database.connect()
        self.connection.execute(
            "CREATE TABLE seen (id bigserial, job_id bigint, attempt int, what text, pid int, actor text,"
            " at timestamptz DEFAULT clock_timestamp());"
            "CREATE TABLE effects (job_id bigint PRIMARY KEY, attempt int)"
        )

    def settings(self, **settings: Any) -> None:
        """Change the class: lease_seconds, timeout_seconds, max_attempts, …."""
        queue.set_class(self.connection, None, CLASS, settings)

    def add(self, kind: str, payload: Any = None, **options: Any) -> int:
        """Enqueue one job; returns its id."""
        return queue.enqueue(self.connection, CLASS, kind, {} if payload is None else payload, **options).id

    def add_many(self, kind: str, number: int, payload: Any = None) -> list[int]:
        """Enqueue many of a kind; returns their ids."""
        ids: list[int] = []
        for at in range(0, number, 5000):
            jobs = [queue.NewJob(CLASS, kind, payload or {"n": n}) for n in range(at, min(number, at + 5000))]
            ids += [each.id for each in queue.enqueue_many(self.connection, jobs)]
        return ids

    def row(self, job: int) -> dict[str, Any]:
        """One row of the view `jobs`."""
        cursor = self.connection.execute("SELECT * FROM jobqueue.jobs WHERE id = %s", (job,))
        columns = [column.name for column in cursor.description or ()]
        return dict(zip(columns, cursor.fetchone() or (), strict=True))

    def attempts(self, job: int) -> list[tuple[Any, ...]]:
        """(number, outcome, error) of every attempt that has ended."""
        return self.connection.execute(
            "SELECT number, outcome, error FROM jobqueue.attempts WHERE job_id = %s AND finished_at IS NOT NULL"
            " ORDER BY budget, number, finished_at",
            (job,),
        ).fetchall()

    def until(self, job: int, status: str, *, within: float = 20.0) -> dict[str, Any]:
        """Wait until a job has a status; returns its row."""

        def reached() -> dict[str, Any] | None:
            row = self.row(job)
            return row if row["status"] == status else None

        try:
            return eventually(reached, within=within, what=f"job {job} to be {status}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {self.row(job)}, attempts {self.attempts(job)}") from None

    def until_all(self, status: str, number: int, *, within: float = 30.0) -> None:
        """Wait until so many jobs have a status."""
        query = "SELECT count(*) FROM jobqueue.jobs WHERE status = %s"

        def count() -> int:
            row = self.connection.execute(query, (status,)).fetchone()
            return int(row[0]) if row else 0

        eventually(lambda: count() >= number, within=within, what=f"{number} jobs to be {status}, not {count()}")

    def seen(self, job: int, what: str = "%") -> list[tuple[Any, ...]]:
        """(attempt, what, pid, at) of what a job's handlers wrote."""
        return self.connection.execute(
            "SELECT attempt, what, pid, at FROM seen WHERE job_id = %s AND what LIKE %s ORDER BY id", (job, what)
        ).fetchall()

    def until_seen(self, job: int, what: str, *, count: int = 1, within: float = 20.0) -> list[tuple[Any, ...]]:
        """Wait until a handler of the job has written something."""
        return eventually(
            lambda: rows if len(rows := self.seen(job, what)) >= count else None,
            within=within,
            what=f"job {job} to write {what!r} {count} times",
        )

    def value(self, query: str, *params: Any) -> Any:
        """First column of the first row."""
        row = self.connection.execute(query, params).fetchone()
        return None if row is None else row[0]


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
