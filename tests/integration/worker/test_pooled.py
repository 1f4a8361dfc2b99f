"""A worker whose every connection but the listener's goes through PgBouncer in transaction mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.databases import Database
    from services.workers import Jobs, Worker


def test_everything_works_behind_a_pooler(
    jobs: Jobs, worker_process: Callable[..., Worker], pooled_database: Database
) -> None:
    kinds = ("wait", "thread.wait", "transaction", "transaction.thread", "transaction.process", "retry", "snooze")
    worker = worker_process(pooled_database, listen_dsn=pooled_database.direct, poll_interval=30, concurrency=4)
    eventually(lambda: jobs.value("SELECT count(*) FROM jobqueue.sleeper"), what="the worker to sleep")
    ids = [job for kind in kinds for job in jobs.add_many(kind, 20, {"n": 1})]
    jobs.until_all("done", len(ids), within=60)
    assert jobs.value("SELECT count(*) FROM effects") == 60
    long = jobs.add("wait", {"seconds": 4})  # longer than the lease
    assert jobs.until(long, "done")["attempts"] == 1
    worker.terminate()
    assert worker.process.wait() == 0
