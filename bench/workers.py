"""Worker processes of ours, started as anyone starts them: `jobqueue worker`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench import cpu, ours

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench.server import Server

SLOTS = 100
WITHIN = 600.0  # seconds that a drain may take


@contextlib.contextmanager
def running(
    dsn: str, *options: str, tree: Path = ours.ROOT, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run one worker of class `bench` until the block ends; then drain it."""
    path = os.pathsep.join([str(tree / "worker_image"), str(tree / "operator"), str(ours.ROOT)])
    with tempfile.TemporaryDirectory(prefix="jq-bench-") as folder:
        log = Path(folder) / "log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    "from jobqueue.cli import main; main()",
                    *(
                        "worker",
                        "--app",
                        "bench.noop:app",
                        "--class",
                        ours.CLASS,
                        "--dsn",
                        dsn,
                        "--log-level",
                        "warning",
                    ),
                    *("--concurrency", str(SLOTS), "--drain-socket", f"{folder}/drain", *options),
                ],
                cwd=ours.ROOT,
                env={**os.environ, "PYTHONPATH": path, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )
        try:
            yield process
            if process.poll() is not None:
                raise RuntimeError(log.read_text(errors="replace")[-2000:])
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait(10)


def drain(server: Server, database: str, jobs: int, *options: str, tree: Path = ours.ROOT) -> dict[str, float]:
    """Work everything off; return jobs a second, and the time of the worker's processors for one job.

    From the first claim to the last acknowledgement, by the database's clock.
    """
    with server.connect(database) as conn, running(server.dsn(database), *options, tree=tree) as process:
        [(first, last)] = conn.execute("SELECT min(id), max(id) FROM jobqueue.body").fetchall()
        end = time.monotonic() + WITHIN

        def reached(condition: str) -> None:
            while not conn.execute(condition.encode()).fetchall()[0][0]:
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError("the worker ended or came to a stop")
                time.sleep(0.02)

        reached(f"SELECT EXISTS (SELECT FROM jobqueue.outcome WHERE id = {first})")  # noqa: S608 - a number
        before = cpu.seconds(process.pid)
        reached(
            f"SELECT EXISTS (SELECT FROM jobqueue.outcome WHERE id = {last})"  # noqa: S608 - a number
            " AND NOT EXISTS (SELECT FROM jobqueue.lease)"
        )
        spent = cpu.seconds(process.pid) - before
        [(done, took)] = conn.execute(
            "SELECT count(*), extract(epoch FROM max(finished_at) - min(started_at))::float8"
            " FROM jobqueue.outcome WHERE status = 'd'"
        ).fetchall()
    if done != jobs:
        msg = f"worked off {done} of {jobs} jobs"
        raise AssertionError(msg)
    return {"rate": jobs / took, "client_us": spent / jobs * 1e6}
