"""What operators and settings do to a worker: retired, paused, waiting for admission, recycled, misconfigured."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg.conninfo
import pytest

from jobqueue import queue
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.databases import Database
    from services.workers import Jobs, Worker


def _number(jobs: Jobs) -> int:
    return int(jobs.value("SELECT max(id) FROM jobqueue.worker WHERE state <> 'gone'"))


def test_retired_worker_is_not_ready_finishes_and_comes_back_when_needed(
    jobs: Jobs, worker_process: Callable[..., Worker]
) -> None:
    worker = worker_process(concurrency=2)
    running = jobs.add("wait", {"seconds": 2})
    jobs.until_seen(running, "start")
    number = _number(jobs)
    assert queue.retire_worker(jobs.connection, None, [number]) == {number: 1}
    late = jobs.add("wait")
    eventually(lambda: worker.get("/ready")[0] == 503, what="readiness to fail")
    assert worker.get("/live")[0] == 200
    assert jobs.until(running, "done")["attempts"] == 1
    assert jobs.row(late)["status"] == "pending"
    assert queue.unretire_worker(jobs.connection, None, [number]) == [number]
    assert jobs.until(late, "done")["attempts"] == 1
    eventually(lambda: worker.get("/ready")[0] == 200, what="readiness")


def test_a_worker_that_is_taken_back_claims_again_long_before_its_next_ordinary_heartbeat(
    jobs: Jobs, worker_process: Callable[..., Worker]
) -> None:
    jobs.settings(lease_seconds=60)  # a heartbeat each five seconds
    worker = worker_process()
    number = _number(jobs)
    queue.retire_worker(jobs.connection, None, [number])
    late = jobs.add("noop")
    eventually(lambda: worker.get("/ready")[0] == 503, what="the worker to hear of it")
    assert jobs.row(late)["status"] == "pending"
    queue.unretire_worker(jobs.connection, None, [number])
    jobs.until(late, "done", within=2.5)


def test_paused_class_is_not_claimed_from(jobs: Jobs, worker_process: Callable[..., Worker]) -> None:
    worker = worker_process()
    queue.set_paused(jobs.connection, None, "default", paused=True)
    eventually(lambda: '"why": "paused"' in worker.get("/ready")[1], what="the worker to hear of the pause")
    job = jobs.add("noop")
    assert worker.get("/ready")[0] == 200
    queue.set_paused(jobs.connection, None, "default", paused=False)
    jobs.until(job, "done")


def test_worker_waits_for_admission_live_and_not_ready_without_importing_the_app(
    jobs: Jobs, worker_process: Callable[..., Worker]
) -> None:
    queue.set_downstream(jobs.connection, None, "bank", 3)
    jobs.settings(downstream="bank", units_per_pod=2, units_per_job=1)
    first = worker_process()
    second = worker_process(ready=False)
    eventually(
        lambda: second.events("waiting for admission: the downstream has no units left for another worker"),
        what="the second to wait",
    )
    assert second.get("/live")[0] == 200
    assert second.get("/ready")[0] == 503
    assert second.events("runner started") == []
    first.terminate()
    assert first.process.wait() == 0
    second.until_ready()
    jobs.until(jobs.add("noop"), "done")


def test_limited_class_uses_its_limit_and_never_more(jobs: Jobs, worker_process: Callable[..., Worker]) -> None:
    queue.set_downstream(jobs.connection, None, "bank", 3)
    jobs.settings(downstream="bank", units_per_job=1)
    worker_process(concurrency=8)
    jobs.add_many("wait", 30, {"seconds": 0.1})
    jobs.until_all("done", 30)
    most = jobs.value(
        "SELECT max(n) FROM (SELECT sum(CASE what WHEN 'start' THEN 1 ELSE -1 END) OVER (ORDER BY id) AS n FROM seen) x"
    )
    assert most == 3


def test_runner_is_replaced_after_so_many_jobs(jobs: Jobs, worker_process: Callable[..., Worker]) -> None:
    worker = worker_process(max_jobs=50)
    jobs.add_many("noop", 200)
    worker.runner(2)
    jobs.until_all("done", 200)
    assert jobs.value("SELECT max(attempts) FROM jobqueue.jobs") == 1
    assert "it has run" in worker.events("replacing the runner")[0]["why"]


def test_runner_is_replaced_above_so_much_memory(jobs: Jobs, worker_process: Callable[..., Worker]) -> None:
    worker = worker_process(max_memory=16, ready=False)  # any runner holds more
    worker.runner(2)
    worker.terminate()
    assert worker.process.wait() == 0
    assert jobs.value("SELECT count(*) FROM jobqueue.worker WHERE state <> 'gone'") == 0


def test_forgotten_worker_registers_again(jobs: Jobs, worker_process: Callable[..., Worker]) -> None:
    worker = worker_process()
    before = _number(jobs)
    queue.forget_worker(jobs.connection, before)
    worker.runner(2)
    jobs.until(jobs.add("noop"), "done")
    assert _number(jobs) != before


def test_crash_loop_is_slowed_down(jobs: Jobs, worker_process: Callable[..., Worker]) -> None:
    del jobs
    worker = worker_process(app="crashing:app", ready=False)
    worker.runner(3)
    began = time.monotonic()
    worker.runner(6)
    assert time.monotonic() - began > 1  # three more, each after a longer pause
    assert worker.get("/live")[0] == 200
    assert worker.get("/ready")[0] == 503
    worker.terminate()
    assert worker.process.wait() == 0


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"app": "nowhere:app"}, "there is no module nowhere"),
        ({"app": "handlers:nothing"}, "nothing is missing"),
        ({"app": "handlers:Number"}, "not an App"),
        ({"app": "broken:app"}, "registered twice"),
        ({"class": "unheard-of"}, "there is no class"),
        ({"class": "slow"}, "above its class's"),
        ({"schema": "elsewhere"}, "jobqueue migrate"),
        ({"app": "no-colon"}, "app: "),
        ({"concurrency": 0}, "concurrency: "),
    ],
)
def test_bad_settings_get_one_line_and_exit_status_2(
    jobs: Jobs, worker_process: Callable[..., Worker], settings: dict[str, object], says: str
) -> None:
    queue.set_class(jobs.connection, None, "slow", {"timeout_seconds": 2})
    worker = worker_process(ready=False, **settings)
    assert worker.process.wait() == 2
    assert "Traceback" not in worker.process.text
    assert len([line for line in worker.process.lines if says in line]) == 1


def test_wrong_password_gets_one_line_and_exit_status_2(
    jobs: Jobs, worker_process: Callable[..., Worker], database: Database
) -> None:
    del jobs
    wrong = psycopg.conninfo.make_conninfo(database.dsn, user="nobody-here", password="canary-4711")
    worker = worker_process(dsn=wrong, ready=False)
    assert worker.process.wait() == 2
    assert "canary" not in worker.process.text
    assert "Traceback" not in worker.process.text


def test_login_without_the_workers_role_gets_one_line_and_exit_status_2(
    jobs: Jobs, worker_process: Callable[..., Worker], database: Database
) -> None:
    jobs.connection.execute("CREATE ROLE mere_producer LOGIN IN ROLE jobqueue_producer")
    try:
        worker = worker_process(dsn=database.as_user("mere_producer"), ready=False)
        assert worker.process.wait() == 2
    finally:
        jobs.connection.execute("DROP ROLE mere_producer")
    assert len([line for line in worker.process.lines if "grant it the queue's worker role" in line]) == 1
    assert "Traceback" not in worker.process.text


def test_unreachable_database_is_tried_again_slowly(worker_process: Callable[..., Worker]) -> None:
    worker = worker_process(dsn="host=127.0.0.1 port=1 dbname=none", ready=False)
    eventually(lambda: len(worker.events("cannot reach the database")) >= 2, what="two tries")
    assert worker.get("/live")[0] == 200
    assert worker.get("/ready")[0] == 503
    worker.terminate()
    assert worker.process.wait() == 0


def test_secrets_and_payloads_are_in_no_output(
    jobs: Jobs, worker_process: Callable[..., Worker], database: Database
) -> None:
    jobs.connection.execute("CREATE ROLE canary_role LOGIN SUPERUSER PASSWORD 'canary-4711'")
    dsn = psycopg.conninfo.make_conninfo(database.dsn, user="canary_role", password="canary-4711")
    worker = worker_process(dsn=dsn, log_level="debug", log_jobs=True)
    for kind in ("wait", "fail", "dead", "transaction", "process.wait"):
        jobs.add(kind, {"secret": "canary-4711"}, max_attempts=1)
    jobs.until_all("done", 3)
    jobs.until_all("dead", 2)
    said = [worker.get(path)[1] for path in ("/live", "/ready", "/progress", "/metrics")]
    worker.terminate()
    assert worker.process.wait() == 0
    assert "canary-4711" not in worker.process.text + "".join(said)
    assert len(worker.events("claimed")) == 5
    assert {"job_id", "kind", "attempt", "correlation_id", "class"} <= worker.events("claimed")[0].keys()
    jobs.connection.execute("DROP ROLE canary_role")
