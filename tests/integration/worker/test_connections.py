"""The database goes away in the middle of everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from services.databases import Database
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.cutting_proxy import CuttingProxy
    from services.postgres import Server
    from services.workers import Jobs, Worker


@pytest.fixture
def cut_worker(worker_process: Callable[..., Worker], database: Database, proxy: CuttingProxy) -> Callable[..., Worker]:
    """Start a worker whose connections all go through the cutting proxy."""

    def start(**settings: object) -> Worker:
        through = Database.of(database.server, database.name, proxy.dsn(database.dsn))
        return worker_process(through, wakeup="polling", **settings)

    return start


def test_commit_whose_reply_is_lost_is_not_run_again(
    jobs: Jobs, cut_worker: Callable[..., Worker], proxy: CuttingProxy
) -> None:
    worker = cut_worker()
    proxy.cut_reply_after(b"COMMIT")
    job = jobs.add("transaction")
    proxy.wait_cut()
    jobs.until_seen(job, "committed")
    assert (jobs.row(job)["status"], jobs.row(job)["attempts"]) == ("done", 1)
    assert len(jobs.seen(job)) == 1
    assert jobs.value("SELECT count(*) FROM effects") == 1
    eventually(lambda: worker.metric("jobqueue_acks_total", outcome="done") == 1, what="the ack to be counted")
    assert worker.metric("jobqueue_stale_acks_rejected_total") == 0


def test_commit_that_never_arrived_is_run_again_with_its_effect(
    jobs: Jobs, cut_worker: Callable[..., Worker], proxy: CuttingProxy
) -> None:
    cut_worker()
    proxy.cut_before(b"COMMIT")
    job = jobs.add("transaction")
    proxy.wait_cut()
    assert jobs.until(job, "done")["attempts"] == 2
    assert jobs.value("SELECT attempt FROM effects WHERE job_id = %s", job) == 2


@pytest.mark.parametrize("verb", [b".complete_many(", b".fail_many("])
def test_acknowledgement_whose_reply_is_lost_is_repeated_and_already_there(
    jobs: Jobs, cut_worker: Callable[..., Worker], proxy: CuttingProxy, verb: bytes
) -> None:
    worker = cut_worker()
    proxy.cut_reply_after(verb)
    job = jobs.add("noop") if b"complete" in verb else jobs.add("dead")
    proxy.wait_cut()
    jobs.until(job, "done" if b"complete" in verb else "dead")
    eventually(lambda: worker.metric("jobqueue_acks_total", outcome="already") == 1, what="`already` to be counted")
    assert worker.metric("jobqueue_stale_acks_rejected_total") == 0
    assert jobs.row(job)["attempts"] == 1


def test_claim_whose_reply_is_lost_is_given_back_at_once(
    jobs: Jobs, cut_worker: Callable[..., Worker], proxy: CuttingProxy
) -> None:
    jobs.settings(lease_seconds=60)
    worker = cut_worker()
    held = jobs.add("wait", {"seconds": 4})
    jobs.until_seen(held, "start")
    with jobs.connection.transaction():
        job = jobs.add("noop")
        proxy.cut_reply_after(b".claim(")
    proxy.wait_cut()
    assert jobs.until(job, "done", within=10)["attempts"] == 1
    assert jobs.until(held, "done")["attempts"] == 1  # what the worker knew that it held stays its own
    assert len(jobs.attempts(held)) == 1
    del worker


def test_backends_terminated_all_the_time_lose_nothing(
    jobs: Jobs, worker_process: Callable[..., Worker], database: Database
) -> None:
    jobs.settings(lease_seconds=10)
    worker = worker_process(concurrency=8)
    ids = jobs.add_many("transaction", 300)
    killer = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE datname = %s AND application_name LIKE 'jobqueue%%'"
    )
    for share in range(1, 6):
        eventually(
            lambda share=share: jobs.value("SELECT count(*) FROM effects") >= share * 40,  # type: ignore[misc]
            within=30,
            what="progress",
        )
        jobs.value(killer, database.name)
    jobs.until_all("done", 300, within=60)
    assert jobs.value("SELECT count(*) FROM effects") == len(ids)
    assert jobs.value("SELECT max(attempts) FROM jobqueue.jobs") <= 6
    assert worker.process.code is None
    assert len(worker.events("runner started")) == 1


def test_restarted_server_is_claimed_from_again(
    jobs: Jobs, worker_process: Callable[..., Worker], pg: Server, database: Database
) -> None:
    worker = worker_process()
    jobs.until(jobs.add("noop"), "done")
    pg.stop()
    eventually(lambda: '"database": false' in worker.get("/ready")[1], what="the worker to notice")
    assert worker.get("/ready")[0] == 200  # readiness does not depend on the database
    assert worker.get("/live")[0] == 200
    pg.start()
    jobs.connection.close()
    jobs.connection = database.connect()
    jobs.until(jobs.add("noop"), "done", within=20)
    assert len([line for line in worker.process.lines if "database (" in line]) < 12
    assert len(worker.events("runner started")) == 1
