"""Threads, descriptors, connections and memory stay what they were, over tens of thousands of jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.databases import Database
    from services.workers import Jobs, Worker

MEMORY = 8 * 1024 * 1024  # bytes that caches and the allocator may still take


def _facts(worker: Worker, jobs: Jobs, database: Database) -> dict[str, int]:
    processes = [psutil.Process(pid) for pid in worker.tree()]
    return {
        "processes": len(processes),
        "threads": sum(each.num_threads() for each in processes),
        "descriptors": sum(len(list(Path(f"/proc/{each.pid}/fd").iterdir())) for each in processes),
        "connections": jobs.value(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND application_name LIKE 'jobqueue%%'",
            database.name,
        ),
    }


@pytest.mark.timeout(300)
def test_nothing_grows(jobs: Jobs, worker_process: Callable[..., Worker], database: Database) -> None:
    jobs.settings(lease_seconds=30)
    worker = worker_process(concurrency=4)

    def work(number: int) -> None:
        before = jobs.value("SELECT count(*) FROM jobqueue.outcome")
        jobs.add_many("noop", number)
        for kind in ("transaction", "transaction.thread", "transaction.process", "dead"):
            jobs.add_many(kind, 50)
        total = before + number + 200
        eventually(
            lambda: jobs.value("SELECT count(*) FROM jobqueue.outcome") >= total, within=120, what="the work's end"
        )

    work(5_000)  # threads, children, pools and caches come into being
    before = _facts(worker, jobs, database)
    memory = {pid: psutil.Process(pid).memory_info().rss for pid in (worker.process.pid, worker.runner())}
    work(25_000)
    after = _facts(worker, jobs, database)
    assert after["processes"] == before["processes"]
    assert after["threads"] <= before["threads"] + 2  # a pool's or the executor's, made late
    assert after["connections"] <= before["connections"] + 3
    assert after["descriptors"] <= before["descriptors"] + 6
    for pid, held in memory.items():
        assert psutil.Process(pid).memory_info().rss < held + MEMORY
