"""From a job's commit to its handler's start, on a worker with nothing to do."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench import ours, workers
from bench.report import Table
from jobqueue import queue

if TYPE_CHECKING:
    from bench.server import Server

POLL = 2.0  # seconds, the worker's default
WITHIN = 30.0


def table(server: Server, jobs: int) -> Table:
    """Measure with NOTIFY and with polling alone."""
    result = Table(
        "Wake-up: enqueue's commit → handler's start, idle worker", ["", "p50 ms", "p99 ms", "most ms", "jobs"]
    )
    for title, number, options in (
        ("NOTIFY", jobs, ("--wakeup", "notify")),
        (f"polling alone, every {POLL:g} s (jittered)", max(10, jobs // 5), ("--wakeup", "polling")),
    ):
        waits = _measure(server, number, ("--poll-interval", str(POLL), *options))
        cuts = statistics.quantiles(waits, n=100, method="inclusive")
        result.rows.append([title, f"{cuts[49]:.1f}", f"{cuts[98]:.1f}", f"{max(waits):.1f}", f"{len(waits)}"])
    return result


def _measure(server: Server, jobs: int, options: tuple[str, ...]) -> list[float]:
    ours.prepare(server, "bench_wakeup", 0)
    seeded = random.Random(7)  # noqa: S311 - when to enqueue, not a secret
    waits: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder) / "notes"
        notes.touch()
        with (
            server.connect("bench_wakeup", prepare_threshold=None) as conn,
            workers.running(server.dsn("bench_wakeup"), *options, env={"BENCH_NOTES": str(notes)}),
        ):
            for number in range(jobs + 1):
                queue.enqueue(conn, ours.CLASS, "note", {"n": number})
                committed = time.monotonic_ns()
                started = _started(notes, number)
                if number:  # the first one waits for the worker to come up
                    waits.append(max(0, started - committed) / 1e6)
                time.sleep(seeded.uniform(0.05, 0.25))  # let it go to sleep again
    return waits


def _started(notes: Path, number: int) -> int:
    end = time.monotonic() + WITHIN
    while time.monotonic() < end:
        for line in notes.read_text().splitlines()[-2:]:
            which, _, at = line.partition(" ")
            if int(which) == number and at:
                return int(at)
        time.sleep(0.002)
    msg = f"job {number} did not start within {WITHIN:g} s"
    raise AssertionError(msg)
