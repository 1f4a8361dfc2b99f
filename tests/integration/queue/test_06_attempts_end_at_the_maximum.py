"""Invariant 6: attempts never exceed max_attempts, a loss on the last one is death, and every attempt leaves a row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from jobqueue import queue

if TYPE_CHECKING:
    from integration.queue.stage import Stage

PAST = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("maximum", [1, 2, 5])
@pytest.mark.parametrize("how", ["fail", "sweep", "forget"])
def test_the_last_attempt_ends_the_job(stage: Stage, how: str, maximum: int) -> None:
    job = stage.enqueue(max_attempts=maximum)
    for number in range(1, maximum + 1):
        worker = stage.worker()
        [claimed] = worker.claim_any()
        assert claimed.attempt == number
        if how == "fail":
            result = queue.fail(stage.conn, job, claimed.token, f"boom {number}", retry_after=timedelta(0)).result
            assert result == ("retry" if number < maximum else "dead")
        elif how == "sweep":
            stage.expire(job)
            swept = stage.sweep()
            assert (swept.requeued, swept.dead) == ((1, 0) if number < maximum else (0, 1))
        else:
            queue.forget_worker(stage.conn, worker.id)
    assert stage.worker().claim_any() == []
    facts = stage.job(job)
    if how == "fail":
        assert facts == ("dead", maximum, "attempts used up", f"boom {maximum}")
    else:
        assert facts == ("dead", maximum, "worker lost", "worker lost")
    history = stage.history(job)
    assert [a.number for a in history] == list(range(1, maximum + 1))
    assert all(a.ended for a in history)
    assert [a.outcome for a in history] == (
        ["retry"] * (maximum - 1) + ["dead"] if how == "fail" else ["lost"] * maximum
    )


def test_every_kind_of_ending_leaves_its_row(stage: Stage) -> None:
    job = stage.enqueue(max_attempts=20)
    first = stage.worker(name="first")
    queue.fail(stage.conn, job, first.claim_one().token, "boom", retry_after=timedelta(0))
    queue.release(stage.conn, job, first.claim_one().token, reason="drain")
    queue.snooze(stage.conn, job, first.claim_one().token, PAST)
    first.claim_one()
    stage.expire(job)
    stage.sweep()
    [lost] = first.claim_any()
    queue.fail(stage.conn, job, lost.token, "fatal", outcome="dead", reason="no such invoice")
    queue.redrive(stage.conn, [job])
    second = stage.worker(name="second")
    queue.fail(stage.conn, job, second.claim_one().token, "stopped", outcome="cancelled")
    queue.redrive(stage.conn, [job])
    queue.complete(stage.conn, job, second.claim_one().token)
    queue.redrive(stage.conn, [job], force=True)
    second.claim_one()
    assert [tuple(a) for a in stage.history(job)] == [
        (0, 1, "retry", "first", "boom", True),
        (0, 2, "released", "first", None, True),
        (0, 2, "snoozed", "first", None, True),
        (0, 2, "lost", "first", "worker lost", True),
        (0, 3, "dead", "first", "fatal", True),
        (1, 1, "cancelled", "second", "stopped", True),
        (2, 1, "done", "second", None, True),
        (3, 1, "running", "second", None, False),
    ]


def test_a_lost_last_attempt_stays_a_loss_in_the_history_after_a_redrive(stage: Stage) -> None:
    job = stage.enqueue(max_attempts=1)
    stage.worker().claim_one()
    stage.expire(job)
    stage.sweep()
    queue.redrive(stage.conn, [job])
    assert [a.outcome for a in stage.history(job)] == ["lost"]


def test_times_of_an_attempt(stage: Stage) -> None:
    job = stage.enqueue()
    claimed = stage.worker().claim_one()
    stage.pass_time(5)
    queue.fail(stage.conn, job, claimed.token, "boom")
    took = stage.one("SELECT extract(epoch FROM finished_at - started_at) FROM jobqueue.attempts")
    assert 5 <= took < 6


def test_the_last_error_is_that_of_the_latest_attempt(stage: Stage) -> None:
    job = stage.enqueue()
    worker = stage.worker()
    for text in ("first", "second"):
        queue.fail(stage.conn, job, worker.claim_one().token, text, retry_after=timedelta(0))
        assert stage.job(job).last_error == text
    queue.complete(stage.conn, job, worker.claim_one().token)
    assert stage.job(job).status == "done"


def test_the_class_gives_the_maximum_unless_the_job_has_its_own(stage: Stage) -> None:
    stage.define("c", max_attempts=7)
    stage.enqueue()
    stage.enqueue(max_attempts=2)
    assert [c.max_attempts for c in stage.worker().claim()] == [7, 2]


def test_attempts_never_exceed_the_maximum_whatever_happens(stage: Stage) -> None:
    """The tables themselves, after a mixed life of many jobs."""
    stage.define("c", max_attempts=2)
    stage.enqueue_bulk(30)
    for turn in range(40):
        worker = stage.worker(name=f"turn-{turn}")
        batch = worker.claim_any(20)
        for claimed in batch[: len(batch) // 2]:
            if turn % 2:
                queue.release(stage.conn, claimed.id, claimed.token, reason="drain")
            else:
                queue.fail(stage.conn, claimed.id, claimed.token, "boom", retry_after=timedelta(0))
        queue.forget_worker(stage.conn, worker.id)
        assert stage.one("SELECT max(attempts) FROM jobqueue.jobs") <= 2
    assert stage.one("SELECT count(*) FROM jobqueue.jobs WHERE status = 'dead'") == 30
