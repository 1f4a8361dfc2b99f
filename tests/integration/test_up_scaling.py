"""From zero to many and back with real workers: nothing is run twice, and nobody is stopped who holds a job."""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from jobqueue import queue
from jobqueue_operator.planner.record import Tick, read
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from services.databases import Database
    from services.postgres import Server
    from services.processes import Process

APP = """
import asyncio, pathlib
from jobqueue import App, Job
app = App()
here = pathlib.Path(__file__).parent

@app.handler("nap", version=1, timeout=60)
async def nap(job: Job[dict]) -> None:
    until = job.payload.get("until")
    while until and not (here / until).exists():
        await asyncio.sleep(0.05)
    await asyncio.sleep(job.payload.get("seconds", 0))
"""

MANIFEST = """
apiVersion: jobqueue.dev/v1alpha1
kind: JobQueue
metadata: {name: shop}
spec:
  app: jobs:app
  classes:
  - name: email
    concurrency: 2
    timeout: 60s
    target: {oldestMessageAge: 8s}
    replicas: {min: 0, max: 4, idleAfter: 1s}
    lease: {duration: 20s}
"""


class Shop:
    """A folder with a manifest and an app, the `up` that runs them, and what it recorded."""

    def __init__(self, folder: Path, database: Database, run: Callable[..., Process]) -> None:
        self.folder, self.database, self._run = folder, database, run
        (folder / "jobs.py").write_text(APP)
        (folder / "jobqueue.yaml").write_text(MANIFEST)
        with database.connect() as connection:
            queue.set_class(connection, None, "email", {})

    def up(self, *options: str) -> Process:
        command = (sys.executable, "-m", "jobqueue", "up", "--tick", "0.5", "--dsn", self.database.direct, *options)
        return self._run(*command, cwd=self.folder)

    def enqueue(self, count: int, **payload: Any) -> None:
        with self.database.connect() as connection:
            queue.enqueue_many(connection, [queue.NewJob("email", "nap", {"n": n, **payload}) for n in range(count)])

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.database.connect() as connection:
            return connection.execute(query).fetchall()

    def statuses(self) -> dict[str, int]:
        return dict(self.rows("SELECT status, count(*)::int FROM jobqueue.jobs GROUP BY status"))

    def outcomes(self) -> dict[str, int]:
        return dict(self.rows("SELECT outcome, count(*)::int FROM jobqueue.attempts GROUP BY outcome"))

    def workers(self) -> dict[str, int]:
        """Return name and process id of every worker's supervisor."""
        found = {}
        for file in (self.folder / ".jobqueue" / "workers").glob("*.json"):
            try:
                record = json.loads(file.read_text())
            except (OSError, ValueError):
                continue  # it is being written, or has just gone
            found[record["name"]] = record["pid"]
        return found

    def has_lost(self, name: str, pid: int) -> bool:
        return self.workers().get(name) != pid

    def recorded(self) -> list[Tick]:
        with (self.folder / ".jobqueue" / "decisions.jsonl").open() as lines:
            return list(read(lines))


@pytest.fixture
def shop(tmp_path: Path, database: Database, run: Callable[..., Process]) -> Shop:
    return Shop(tmp_path, database, run)


def ticks(process: Process) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in list(process.out) if line.startswith("{")]
    return [line["classes"][0] for line in lines if line["event"] == "tick"]


def until(process: Process, condition: Callable[[], object], what: str, *, within: float = 60) -> None:
    """Wait for a condition; fail at once when `up` has ended."""
    eventually(lambda: process.code is not None or condition(), within=within, what=f"{what}\n{process.text[-3000:]}")
    assert process.code is None, process.text


def ready(process: Process, count: int) -> None:
    until(process, lambda: any(t["workers_ready"] == count for t in ticks(process)[-1:]), f"{count} ready workers")


def end(process: Process) -> None:
    process.signal(signal.SIGTERM)
    assert process.wait(within=60) == 0, process.text


@pytest.mark.timeout(180)
def test_a_burst_from_zero_to_many_and_back_runs_every_job_once(shop: Shop) -> None:
    process = shop.up()
    until(process, lambda: ticks(process), "the first tick")
    assert shop.workers() == {}
    shop.enqueue(150, seconds=0.3)
    until(process, lambda: shop.statuses() == {"done": 150}, "every job's end")
    until(process, lambda: not shop.workers(), "zero")
    end(process)
    assert shop.outcomes() == {"done": 150}, "scaling in cost no attempt and gave nothing back"
    assert shop.rows("SELECT DISTINCT attempts FROM jobqueue.jobs") == [(1,)]
    assert max(t["workers_ready"] for t in ticks(process)) == 4
    assert "died" not in process.text
    found = shop.recorded()
    stopped = [(victim, tick) for tick in found for pool in tick.plan.pools for victim in pool.stop]
    assert len({victim.worker for victim, _ in stopped}) == 4
    for victim, tick in stopped:
        (worker,) = (w for w in tick.facts.workers if w.name == victim.worker)
        assert (worker.phase, worker.busy) == ("Retired", 0), "fenced and idle before it is stopped"


@pytest.mark.timeout(180)
def test_workers_killed_while_it_scales_cost_what_they_held_and_nothing_else(shop: Shop) -> None:
    process = shop.up()
    shop.enqueue(200, seconds=0.2)
    killed = 0
    while killed < 6:
        until(process, shop.workers, "a worker")
        for name, pid in list(shop.workers().items()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed += 1
            until(process, partial(shop.has_lost, name, pid), "its end to be noticed")
            break
    until(process, lambda: shop.statuses() == {"done": 200}, "every job's end", within=90)
    until(process, lambda: not shop.workers(), "zero")
    end(process)
    outcomes = shop.outcomes()
    assert outcomes.pop("done") == 200
    assert outcomes.pop("released", 0) < 50
    assert outcomes.pop("lost", 0) <= 6 * 2 * 2, "no more than two slots, and as many ahead, for each kill"
    assert outcomes == {}
    assert shop.rows("SELECT count(*) FROM jobqueue.workers") == [(0,)]


@pytest.mark.timeout(180)
def test_a_database_that_restarts_while_it_scales_is_waited_for(shop: Shop, pg: Server) -> None:
    process = shop.up()
    shop.enqueue(150, seconds=0.3)
    ready(process, 4)
    before = shop.workers()
    pg.stop()
    process.wait_for_line("the queue cannot be read; the workers stay as they are")
    until(process, lambda: len([t for t in ticks(process) if t["reason"] == "QueueNotVisible"]) >= 3, "blind ticks")
    assert all(t["workers_wanted"] == 4 for t in ticks(process) if t["reason"] == "QueueNotVisible")
    assert shop.workers() == before
    pg.start()
    process.wait_for_line("the queue can be read again", within=30)
    until(process, lambda: shop.statuses() == {"done": 150}, "every job's end", within=90)
    assert shop.workers().keys() == before.keys(), "nobody was stopped and nobody started for it"
    until(process, lambda: not shop.workers(), "zero")
    end(process)
    assert set(shop.outcomes()) <= {"done", "released", "lost"}


@pytest.mark.timeout(120)
def test_a_record_that_cannot_be_written_stops_nothing(shop: Shop) -> None:
    (shop.folder / "record").mkdir()
    shop.enqueue(5)
    process = shop.up("--until-empty", "--record", "record")
    assert process.wait(within=60) == 0, process.text
    assert shop.statuses() == {"done": 5}
    assert len([line for line in process.lines if "decisions are not recorded" in line]) == 1
