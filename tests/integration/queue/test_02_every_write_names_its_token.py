"""Invariant 2: a write without the current token is refused by a typed error, and never by silence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from jobqueue import queue
from jobqueue.errors import StaleLease, WorkerRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.queue.stage import Connection, Stage

LATER = datetime(2100, 1, 1, tzinfo=UTC)

# Each write of one job, on (connection, id, token); all raise StaleLease.
SINGLE: dict[str, Callable[[Connection, int, int], Any]] = {
    "complete": queue.complete,
    "fail": lambda c, i, t: queue.fail(c, i, t, "boom"),
    "dead": lambda c, i, t: queue.fail(c, i, t, "boom", outcome="dead"),
    "release": lambda c, i, t: queue.release(c, i, t, reason="drain"),
    "snooze": lambda c, i, t: queue.snooze(c, i, t, LATER),
    "checkpoint": lambda c, i, t: queue.checkpoint(c, i, t, {"at": 1}),
    "effect": lambda c, i, t: queue.effect(c, i, t, "mail:1"),
}
# Each write of a batch, on (connection, ids, tokens); a row that is not the caller's answers `stale`.
BATCH: dict[str, Callable[[Connection, list[int], list[int]], list[Any]]] = {
    "complete_many": queue.complete_many,
    "fail_many": lambda c, i, t: queue.fail_many(
        c, i, t, ["e"] * len(i), ["retry"] * len(i), [None] * len(i), [None] * len(i)
    ),
    "release_many": lambda c, i, t: queue.release_many(c, i, t, reason="drain"),
    "snooze_many": lambda c, i, t: queue.snooze_many(c, i, t, [LATER] * len(i)),
}
TRACES = (
    "SELECT (SELECT count(*) FROM jobqueue.checkpoint) + (SELECT count(*) FROM jobqueue.effect)"
    " + (SELECT count(*) FROM jobqueue.outcome) + (SELECT count(*) FROM jobqueue.attempt)"
)


@pytest.mark.parametrize("write", SINGLE)
def test_a_wrong_token_is_refused_and_changes_nothing(stage: Stage, write: str) -> None:
    job = stage.enqueue()
    claimed = stage.worker().claim_one()
    with pytest.raises(StaleLease, match=f"job {job} "):
        SINGLE[write](stage.conn, job, claimed.token + 1)
    assert stage.status(job) == "running"
    assert stage.one(TRACES) == 0
    assert stage.one("SELECT token FROM jobqueue.lease") == claimed.token


@pytest.mark.parametrize("write", SINGLE)
def test_a_job_that_does_not_exist_or_waits_is_refused(stage: Stage, write: str) -> None:
    job = stage.enqueue()
    for absent in (job, job + 1000):
        with pytest.raises(StaleLease):
            SINGLE[write](stage.conn, absent, 1)
    assert stage.status(job) == "pending"


@pytest.mark.parametrize("write", SINGLE)
def test_the_token_of_an_earlier_attempt_is_refused(stage: Stage, write: str) -> None:
    job = stage.enqueue()
    worker = stage.worker()
    first = worker.claim_one()
    stage.expire(job)
    stage.sweep()
    [second] = worker.claim_any(1)
    assert second.id == job
    assert second.token != first.token
    with pytest.raises(StaleLease):
        SINGLE[write](stage.conn, job, first.token)
    assert queue.complete(stage.conn, job, second.token) == "done"


@pytest.mark.parametrize("write", BATCH)
def test_a_stale_row_of_a_batch_affects_no_other(stage: Stage, write: str) -> None:
    jobs = [stage.enqueue() for _ in range(3)]
    claimed = stage.worker().claim()
    assert [c.id for c in claimed] == jobs
    tokens = [c.token for c in claimed]
    tokens[1] += 1
    results = {row.id: row.result for row in BATCH[write](stage.conn, jobs, tokens)}
    assert results[jobs[1]] == "stale"
    assert stage.status(jobs[1]) == "running"
    assert "stale" not in (results[jobs[0]], results[jobs[2]])
    assert stage.one("SELECT count(*) FROM jobqueue.lease") == 1


def test_extend_answers_for_each_row_and_for_its_own_worker_only(stage: Stage) -> None:
    jobs = [stage.enqueue() for _ in range(2)]
    worker = stage.worker()
    claimed = worker.claim()
    tokens = [claimed[0].token, claimed[1].token + 1]
    assert [(e.id, e.result) for e in queue.extend(stage.conn, worker.id, jobs, tokens)] == [
        (jobs[0], "extended"),
        (jobs[1], "stale"),
    ]
    other = stage.worker()
    [stolen] = queue.extend(stage.conn, other.id, jobs[:1], tokens[:1])
    assert stolen.result == "stale"
    [gone] = queue.extend(stage.conn, worker.id, [10**12], [1])
    assert gone.result == "stale"


def test_extend_renews_from_now(stage: Stage) -> None:
    job = stage.enqueue()
    worker = stage.worker()
    claimed = worker.claim_one()
    stage.pass_time(50)
    [renewed] = queue.extend(stage.conn, worker.id, [job], [claimed.token])
    left = stage.one("SELECT extract(epoch FROM leased_until - clock_timestamp()) FROM jobqueue.lease")
    assert renewed.result == "extended"
    assert 59 < left <= 60


REPEATABLE: dict[str, Callable[[Connection, int, int], Any]] = {
    "complete": queue.complete,
    "retry": lambda c, i, t: queue.fail(c, i, t, "boom").result,
    "dead": lambda c, i, t: queue.fail(c, i, t, "boom", outcome="dead").result,
    "cancelled": lambda c, i, t: queue.fail(c, i, t, "boom", outcome="cancelled").result,
    "release": lambda c, i, t: queue.release(c, i, t, reason="drain"),
    "snooze": lambda c, i, t: queue.snooze(c, i, t, LATER),
}


@pytest.mark.parametrize("write", REPEATABLE)
def test_repeating_a_committed_answer_says_already(stage: Stage, write: str) -> None:
    job = stage.enqueue()
    claimed = stage.worker().claim_one()
    REPEATABLE[write](stage.conn, job, claimed.token)
    before = stage.job(job)
    assert REPEATABLE[write](stage.conn, job, claimed.token) == "already"
    assert stage.job(job) == before
    assert len(stage.history(job)) == 1


def test_already_holds_after_the_job_was_claimed_again_and_redriven(stage: Stage) -> None:
    job = stage.enqueue()
    worker = stage.worker()
    first = worker.claim_one()
    queue.fail(stage.conn, job, first.token, "boom", retry_after=timedelta(0))
    second = worker.claim_one()
    assert queue.fail(stage.conn, job, first.token, "boom").result == "already"
    assert stage.status(job) == "running"
    assert queue.complete(stage.conn, job, second.token) == "done"
    queue.redrive(stage.conn, [job], force=True)
    assert queue.complete(stage.conn, job, second.token) == "already"
    assert stage.status(job) == "pending"


def test_already_is_for_the_same_answer_only(stage: Stage) -> None:
    jobs = [stage.enqueue() for _ in range(2)]
    done, failed = stage.worker().claim()
    queue.complete(stage.conn, done.id, done.token)
    queue.fail(stage.conn, failed.id, failed.token, "boom")
    with pytest.raises(StaleLease):
        queue.fail(stage.conn, done.id, done.token, "boom")
    with pytest.raises(StaleLease):
        queue.complete(stage.conn, failed.id, failed.token)
    assert [stage.status(j) for j in jobs] == ["done", "pending"]


@pytest.mark.parametrize("max_attempts", [1, 5])
@pytest.mark.parametrize("outcome", ["retry", "dead"])
def test_a_loss_is_nobodys_answer(stage: Stage, max_attempts: int, outcome: str) -> None:
    """The sweep ended the attempt: its worker's first word about it is stale, not a repetition."""
    job = stage.enqueue(max_attempts=max_attempts)
    claimed = stage.worker().claim_one()
    stage.expire(job)
    stage.sweep()
    with pytest.raises(StaleLease):
        queue.fail(stage.conn, job, claimed.token, "boom", outcome=outcome)
    with pytest.raises(StaleLease):
        queue.release(stage.conn, job, claimed.token, reason="drain")


@pytest.mark.parametrize("max_attempts", [1, 5])
def test_a_loss_that_the_worker_itself_reports_is_its_answer(stage: Stage, max_attempts: int) -> None:
    """The job's own process died under it, and its worker lives to say so."""
    job = stage.enqueue(max_attempts=max_attempts)
    claimed = stage.worker().claim_one()

    def fail() -> str:
        return queue.fail(stage.conn, job, claimed.token, "killed by SIGKILL", reason="worker lost").result

    assert [fail(), fail()] == ["retry" if max_attempts > 1 else "dead", "already"]
    assert [a.outcome for a in stage.history(job)] == ["lost"]


def test_recover_gives_back_what_the_worker_does_not_know(stage: Stage) -> None:
    jobs = [stage.enqueue() for _ in range(3)]
    worker = stage.worker()
    claimed = worker.claim()
    assert queue.recover(stage.conn, worker.id, worker.request, [claimed[1].token]) == 2
    assert [stage.job(j)[:2] for j in jobs] == [("pending", 0), ("running", 1), ("pending", 0)]
    assert [a.outcome for a in stage.history(jobs[0])] == ["released"]
    assert queue.complete(stage.conn, jobs[1], claimed[1].token) == "done"


def test_recover_touches_no_other_worker(stage: Stage) -> None:
    job = stage.enqueue()
    other = stage.worker()
    other.claim_one()
    worker = stage.worker()
    assert queue.recover(stage.conn, worker.id, 99, []) == 0
    assert stage.status(job) == "running"


def test_recover_fences_the_claims_before_it(stage: Stage) -> None:
    stage.enqueue()
    worker = stage.worker()
    queue.recover(stage.conn, worker.id, 5, [])
    for late in (1, 5):
        with pytest.raises(WorkerRefused, match="fenced off"):
            queue.claim(stage.conn, "c", worker.id, late, max_jobs=1)
    assert len(queue.claim(stage.conn, "c", worker.id, 6, max_jobs=1)) == 1
    queue.recover(stage.conn, worker.id, 2, [])  # an older fence does not lower it
    with pytest.raises(WorkerRefused):
        queue.claim(stage.conn, "c", worker.id, 5, max_jobs=1)


def test_recover_waits_for_a_claim_under_way(stage: Stage) -> None:
    job = stage.enqueue()
    worker = stage.worker()
    slow = stage.connect(autocommit=False)
    assert len(queue.claim(slow, "c", worker.id, 1, max_jobs=1)) == 1
    recovering = stage.connect()
    given_back = stage.background(lambda: queue.recover(recovering, worker.id, 1, []))
    stage.wait_until_blocked()
    slow.commit()
    assert given_back.result(20) == 1
    assert stage.job(job)[:2] == ("pending", 0)


def test_recover_of_an_unknown_worker_is_refused(stage: Stage) -> None:
    with pytest.raises(WorkerRefused, match="not registered"):
        queue.recover(stage.conn, 4711, 1, [])
