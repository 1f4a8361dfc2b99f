"""What people do to jobs: cancel in each state, redrive one or many, redact for good."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from jobqueue import queue
from jobqueue.errors import InvalidInput, NotRedrivable, StaleLease, UnknownJob

if TYPE_CHECKING:
    from integration.queue.stage import Stage


def _dead(stage: Stage, error: str = "boom", **options: Any) -> int:
    job = stage.enqueue(**options)
    [claimed] = [c for c in stage.worker(kinds=[("work", 1), ("other", 1)]).claim() if c.id == job]
    queue.fail(stage.conn, job, claimed.token, error, outcome="dead")
    return job


# --- cancel ---


def test_a_pending_job_is_cancelled_at_once(stage: Stage) -> None:
    job = stage.enqueue()
    assert queue.cancel(stage.conn, job) == "cancelled"
    assert stage.job(job)[:3] == ("cancelled", 0, "cancelled while pending")
    assert stage.worker().claim() == []
    assert stage.history(job) == []


def test_a_running_job_is_asked_to_stop_and_its_worker_told(stage: Stage) -> None:
    job = stage.enqueue()
    worker = stage.worker()
    claimed = worker.claim_one()
    assert queue.heartbeat(stage.conn, worker.id).cancel == []
    assert queue.cancel(stage.conn, job) == "requested"
    assert queue.cancel(stage.conn, job) == "requested"
    assert queue.heartbeat(stage.conn, worker.id).cancel == [job]
    [renewed] = queue.extend(stage.conn, worker.id, [job], [claimed.token])
    assert (renewed.result, renewed.cancel) == ("extended", True)
    assert stage.status(job) == "running"


@pytest.mark.parametrize("ending", ["fail", "release", "snooze", "sweep", "forget", "recover"])
def test_a_job_asked_to_stop_is_not_tried_again(stage: Stage, ending: str) -> None:
    job = stage.enqueue()
    worker = stage.worker()
    claimed = worker.claim_one()
    queue.cancel(stage.conn, job)
    match ending:
        case "fail":
            assert queue.fail(stage.conn, job, claimed.token, "boom").result == "cancelled"
        case "release":
            assert queue.release(stage.conn, job, claimed.token, reason="drain") == "cancelled"
        case "snooze":
            later = stage.one("SELECT clock_timestamp() + interval '1 hour'")
            assert queue.snooze(stage.conn, job, claimed.token, later) == "cancelled"
        case "sweep":
            stage.expire(job)
            assert stage.sweep().cancelled == 1
        case "forget":
            queue.forget_worker(stage.conn, worker.id)
        case "recover":
            queue.recover(stage.conn, worker.id, 9, [])
    assert stage.status(job) == "cancelled"
    assert len(stage.history(job)) == 1


def test_a_job_that_finishes_before_it_hears_is_done(stage: Stage) -> None:
    job = stage.enqueue()
    claimed = stage.worker().claim_one()
    queue.cancel(stage.conn, job)
    assert queue.complete(stage.conn, job, claimed.token) == "done"
    assert queue.cancel(stage.conn, job) == "finished"


def test_cancel_of_what_does_not_exist(stage: Stage) -> None:
    with pytest.raises(UnknownJob, match="no job 4711"):
        queue.cancel(stage.conn, 4711)


def test_cancel_meets_a_claim_under_way(stage: Stage) -> None:
    job = stage.enqueue()
    worker = stage.worker(conn=stage.connect(autocommit=False))
    worker.claim_one()
    cancelling = stage.connect()
    answer = stage.background(queue.cancel, cancelling, job)
    stage.wait_until_blocked()
    worker.conn.commit()
    assert answer.result(20) == "requested"
    assert stage.one("SELECT cancel FROM jobqueue.lease") is True


def test_cancel_meets_an_acknowledgement_under_way(stage: Stage) -> None:
    job = stage.enqueue()
    claimed = stage.worker().claim_one()
    finishing, cancelling = stage.connect(autocommit=False), stage.connect()
    queue.complete(finishing, job, claimed.token)
    answer = stage.background(queue.cancel, cancelling, job)
    stage.wait_until_blocked()
    finishing.commit()
    assert answer.result(20) == "finished"


# --- redrive ---


def test_each_state_and_what_redrive_says(stage: Stage) -> None:
    dead = _dead(stage)
    cancelled = stage.enqueue()
    queue.cancel(stage.conn, cancelled)
    done = stage.enqueue()
    queue.complete(stage.conn, done, stage.worker().claim_one().token)
    running = stage.enqueue()
    stage.worker().claim_one()
    redacted = _dead(stage, kind="other")
    queue.redact(stage.conn, [redacted])
    pending = stage.enqueue()
    answers = dict(queue.redrive(stage.conn, [dead, cancelled, done, running, pending, redacted, 4711, dead]))
    assert answers == {
        dead: "redriven",
        cancelled: "redriven",
        done: "skipped: done",
        running: "skipped: running",
        pending: "skipped: pending",
        redacted: "skipped: redacted",
        4711: "skipped: unknown",
    }
    assert [stage.status(j) for j in (dead, cancelled, done, running, pending)] == [
        "pending",
        "pending",
        "done",
        "running",
        "pending",
    ]


def test_a_redriven_job_has_a_fresh_budget_and_its_history(stage: Stage) -> None:
    job = _dead(stage, max_attempts=2)
    queue.redrive(stage.conn, [job])
    worker = stage.worker()
    for number in (1, 2):
        claimed = worker.claim_one()
        assert claimed.attempt == number
        queue.fail(stage.conn, job, claimed.token, f"again {number}", retry_after=timedelta(0))
    assert stage.job(job)[:2] == ("dead", 2)
    assert [(a.budget, a.number) for a in stage.history(job)] == [(0, 1), (1, 1), (1, 2)]


def test_redrive_wakes_sleepers_and_keeps_limits(stage: Stage) -> None:
    stage.define("c", fair_tenants=True, tenant_limit=1)
    jobs = [_dead(stage, concurrency_key=f"k{n}", tenant="t") for n in range(2)]
    queue.redrive(stage.conn, jobs)
    assert len(stage.worker().claim()) == 1


def test_redrive_by_filter(stage: Stage) -> None:
    stage.define("d")
    timeouts = [_dead(stage, "timeout after 30 s") for _ in range(3)]
    other = _dead(stage, "no such invoice")
    _dead(stage, "timeout", kind="other")
    assert queue.redrive_where(stage.conn, class_="d") == 0
    assert queue.redrive_where(stage.conn, class_="c", kind="work", error_like="timeout%", max_jobs=2) == 2
    assert [stage.status(j) for j in timeouts] == ["pending", "pending", "dead"]
    assert queue.redrive_where(stage.conn, kind="work", error_like="timeout%") == 1
    now = stage.one("SELECT clock_timestamp()")
    assert queue.redrive_where(stage.conn, kind="work", finished_after=now) == 0
    assert queue.redrive_where(stage.conn, kind="work", finished_before=now) == 1
    assert stage.status(other) == "pending"


def test_redrive_of_done_jobs_by_filter_needs_force(stage: Stage) -> None:
    job = stage.enqueue()
    queue.complete(stage.conn, job, stage.worker().claim_one().token)
    with pytest.raises(NotRedrivable, match="only by force"):
        queue.redrive_where(stage.conn, status="done")
    assert queue.redrive_where(stage.conn, status="done", force=True) == 1
    with pytest.raises(InvalidInput, match="status: "):
        queue.redrive_where(stage.conn, status="failed")
    with pytest.raises(InvalidInput, match="max_jobs: "):
        queue.redrive_where(stage.conn, max_jobs=0)


def test_two_redrives_at_once_make_one(stage: Stage) -> None:
    job = _dead(stage)
    first, second = stage.connect(autocommit=False), stage.connect()
    [one] = queue.redrive(first, [job])
    answer = stage.background(queue.redrive, second, [job])
    stage.wait_until_blocked()
    first.commit()
    assert one.result == "redriven"
    assert answer.result(20)[0].result == "skipped: pending"
    assert stage.job(job)[:2] == ("pending", 0)


# --- redact ---


def test_redact_removes_what_the_job_said(stage: Stage) -> None:
    job = stage.enqueue(payload={"iban": "secret"}, trace_context={"traceparent": "secret"}, max_attempts=2)
    worker = stage.worker()
    claimed = worker.claim_one()
    queue.checkpoint(stage.conn, job, claimed.token, {"at": "secret"})
    queue.fail(stage.conn, job, claimed.token, "secret", retry_after=timedelta(0))
    queue.fail(stage.conn, job, worker.claim_one().token, "secret")
    assert queue.redact(stage.conn, [job, 4711]) == 1
    for table in ("jobs", "attempts", "body", "outcome", "attempt", "checkpoint"):
        found = stage.one(f"SELECT count(*) FROM jobqueue.{table} x WHERE x::text LIKE '%%secret%%' AND %s", [True])  # noqa: S608
        assert found == 0, table
    assert stage.one("SELECT payload FROM jobqueue.jobs") == {"redacted": True}


def test_a_late_word_about_a_lost_and_redacted_job_is_stale(stage: Stage) -> None:
    job = stage.enqueue(max_attempts=1)
    claimed = stage.worker().claim_one()
    stage.expire(job)
    assert stage.sweep().dead == 1
    queue.redact(stage.conn, [job])
    with pytest.raises(StaleLease):
        queue.fail(stage.conn, job, claimed.token, "too late")


def test_a_late_word_about_a_lost_cancelled_and_redriven_job_is_stale(stage: Stage) -> None:
    job = stage.enqueue()
    claimed = stage.worker().claim_one()
    queue.cancel(stage.conn, job)
    stage.expire(job)
    assert stage.sweep().cancelled == 1
    queue.redrive(stage.conn, [job])
    with pytest.raises(StaleLease):
        queue.release(stage.conn, job, claimed.token, reason="too late")


@pytest.mark.parametrize("state", ["pending", "running"])
def test_a_live_job_is_not_redacted(stage: Stage, state: str) -> None:
    job = stage.enqueue()
    if state == "running":
        stage.worker().claim_one()
    ended = _dead(stage, kind="other")
    with pytest.raises(NotRedrivable, match=f"job {job} has not ended"):
        queue.redact(stage.conn, [ended, job])
    assert stage.one("SELECT count(*) FROM jobqueue.body WHERE redacted") == 0
