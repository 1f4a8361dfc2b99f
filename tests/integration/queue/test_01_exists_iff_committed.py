"""Invariant 1: a job exists iff its enqueueing transaction committed, and nothing is visible before that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from jobqueue import queue
from jobqueue.queue import NewJob

if TYPE_CHECKING:
    from integration.queue.stage import Connection, Stage

CHANNEL = "jobqueue:jobqueue"
EVERYWHERE = (
    "SELECT (SELECT count(*) FROM jobqueue.body) + (SELECT count(*) FROM jobqueue.ready)"
    " + (SELECT count(*) FROM jobqueue.lease) + (SELECT count(*) FROM jobqueue.outcome)"
    " + (SELECT count(*) FROM jobqueue.idempotency)"
)


@pytest.mark.parametrize("verb", ["enqueue", "enqueue_many"])
def test_a_rolled_back_enqueue_leaves_nothing(stage: Stage, verb: str) -> None:
    conn = stage.connect(autocommit=False)
    if verb == "enqueue":
        queue.enqueue(conn, "c", "work", {}, key="k")
    else:
        queue.enqueue_many(conn, [NewJob("c", "work", {}, key=f"k{i}") for i in range(3)])
    conn.rollback()
    assert stage.one(EVERYWHERE) == 0


def test_an_uncommitted_job_is_invisible_and_a_committed_one_is_there(stage: Stage) -> None:
    worker = stage.worker()
    conn = stage.connect(autocommit=False)
    job = queue.enqueue(conn, "c", "work", {"n": 1}).id
    assert worker.claim() == []
    assert stage.snapshot()["ready"] == 0
    assert stage.one("SELECT count(*) FROM jobqueue.jobs") == 0
    conn.commit()
    assert stage.snapshot()["ready"] == 1
    assert [(j.id, j.payload) for j in worker.claim()] == [(job, {"n": 1})]


def test_a_failing_statement_after_the_enqueue_takes_the_job_with_it(stage: Stage) -> None:
    conn = stage.connect(autocommit=False)
    queue.enqueue(conn, "c", "work", {})
    with pytest.raises(psycopg.errors.DivisionByZero):
        conn.execute("SELECT 1/0")
    conn.commit()
    assert stage.one(EVERYWHERE) == 0


def test_a_savepoint_rolled_back_takes_only_its_own_jobs(stage: Stage) -> None:
    conn = stage.connect(autocommit=False)
    kept = queue.enqueue(conn, "c", "work", {}).id
    conn.execute("SAVEPOINT before")
    queue.enqueue(conn, "c", "work", {}, key="gone")
    conn.execute("ROLLBACK TO before")
    conn.commit()
    assert [j.id for j in stage.worker().claim()] == [kept]
    assert stage.one("SELECT count(*) FROM jobqueue.idempotency") == 0


def test_a_completion_rolled_back_leaves_the_job_with_its_worker(stage: Stage) -> None:
    job = stage.enqueue()
    claimed = stage.worker().claim_one()
    conn = stage.connect(autocommit=False)
    assert queue.complete(conn, claimed.id, claimed.token) == "done"
    conn.rollback()
    assert stage.status(job) == "running"
    assert queue.complete(stage.conn, claimed.id, claimed.token) == "done"


def _heard(listener: Connection, stage: Stage) -> list[str]:
    """Return what was said up to now: a marker, sent last, comes last."""
    stage.admin.execute("SELECT pg_notify(%s, 'marker')", [CHANNEL])
    heard: list[str] = []
    for note in listener.notifies(timeout=20):
        if note.payload == "marker":
            return heard
        heard.append(note.payload)
    raise AssertionError("the marker never came")


def _listener(stage: Stage) -> Connection:
    listener = stage.connect(dsn=stage.database.direct)
    listener.execute(f'LISTEN "{CHANNEL}"')
    return listener


def test_notify_comes_after_the_commit_and_once(stage: Stage) -> None:
    worker, listener = stage.worker(), _listener(stage)
    queue.sleeping(stage.conn, worker.id, "c", asleep=True)
    conn = stage.connect(autocommit=False)
    queue.enqueue_many(conn, [NewJob("c", "work", {})] * 50)
    queue.enqueue(conn, "c", "work", {})
    assert _heard(listener, stage) == []
    conn.commit()
    assert _heard(listener, stage) == ["class:c"]


def test_a_rolled_back_enqueue_notifies_nobody(stage: Stage) -> None:
    worker, listener = stage.worker(), _listener(stage)
    queue.sleeping(stage.conn, worker.id, "c", asleep=True)
    conn = stage.connect(autocommit=False)
    queue.enqueue(conn, "c", "work", {})
    conn.rollback()
    assert _heard(listener, stage) == []


def test_nobody_asleep_nobody_notified(stage: Stage) -> None:
    stage.define("other")
    awake, listener = stage.worker(), _listener(stage)
    queue.sleeping(stage.conn, stage.worker("other").id, "other", asleep=True)
    stage.enqueue()
    queue.enqueue_many(stage.conn, [NewJob("c", "work", {})] * 2)
    assert _heard(listener, stage) == []
    queue.sleeping(stage.conn, awake.id, "c", asleep=True)
    queue.sleeping(stage.conn, awake.id, "c", asleep=False)
    stage.enqueue()
    assert _heard(listener, stage) == []


def test_a_job_for_later_wakes_nobody_and_a_retry_at_once_does(stage: Stage) -> None:
    worker, listener = stage.worker(), _listener(stage)
    due = stage.one("SELECT clock_timestamp() + interval '1 hour'")
    queue.sleeping(stage.conn, worker.id, "c", asleep=True)
    stage.enqueue(run_after=due)
    queue.enqueue_many(stage.conn, [NewJob("c", "work", {}, run_after=due)])
    assert _heard(listener, stage) == []
    stage.enqueue()
    assert _heard(listener, stage) == ["class:c"]
    claimed = worker.claim_one()
    queue.release(stage.conn, claimed.id, claimed.token, reason="drain")
    assert _heard(listener, stage) == ["class:c"]
