"""Invariant 10: an effect key is recorded at most once, with its effect, under the current token."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from jobqueue import queue
from jobqueue.errors import InvalidInput, StaleLease

if TYPE_CHECKING:
    from integration.queue.stage import Stage


def test_true_the_first_time_and_false_ever_after(stage: Stage) -> None:
    jobs = [stage.enqueue() for _ in range(2)]
    one, two = stage.worker().claim()
    assert queue.effect(stage.conn, jobs[0], one.token, "mail:1") is True
    assert queue.effect(stage.conn, jobs[0], one.token, "mail:1") is False
    assert queue.effect(stage.conn, jobs[1], two.token, "mail:1") is False
    assert queue.effect(stage.conn, jobs[1], two.token, "mail:2") is True


def test_a_rolled_back_effect_was_not_recorded(stage: Stage) -> None:
    job = stage.enqueue()
    claimed = stage.worker().claim_one()
    conn = stage.connect(autocommit=False)
    assert queue.effect(conn, job, claimed.token, "mail:1") is True
    conn.rollback()
    assert queue.effect(stage.conn, job, claimed.token, "mail:1") is True


def test_the_next_attempt_skips_what_was_done(stage: Stage) -> None:
    job = stage.enqueue()
    worker = stage.worker()
    claimed = worker.claim_one()
    assert queue.effect(stage.conn, job, claimed.token, "mail:1") is True
    stage.expire(job)
    stage.sweep()
    [again] = worker.claim_any()
    assert queue.effect(stage.conn, job, again.token, "mail:1") is False
    queue.complete(stage.conn, job, again.token)
    queue.redrive(stage.conn, [job], force=True)
    assert queue.effect(stage.conn, job, worker.claim_one().token, "mail:1") is False


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_an_uncommitted_twin_is_waited_for(stage: Stage, ending: str) -> None:
    jobs = [stage.enqueue() for _ in range(2)]
    one, two = stage.worker().claim()
    first, second = stage.connect(autocommit=False), stage.connect()
    assert queue.effect(first, jobs[0], one.token, "mail:1") is True
    answer = stage.background(queue.effect, second, jobs[1], two.token, "mail:1")
    stage.wait_until_blocked()
    getattr(first, ending)()
    assert answer.result(20) is (ending == "rollback")


def test_a_lease_that_ends_while_a_twin_is_waited_for_records_nothing(direct: Stage) -> None:
    jobs = [direct.enqueue() for _ in range(2)]
    worker = direct.worker()
    one = worker.claim_one()
    two = worker.claim_one()
    first, second = direct.connect(autocommit=False), direct.connect()
    assert queue.effect(first, jobs[0], one.token, "mail:1") is True
    answer = direct.background(queue.effect, second, jobs[1], two.token, "mail:1")
    direct.wait_until_blocked()
    direct.expire(jobs[1])
    first.rollback()
    with pytest.raises(StaleLease):
        answer.result(20)
    assert direct.one("SELECT count(*) FROM jobqueue.effect") == 0


@pytest.mark.parametrize("key", ["", "x" * 513, "nul\x00"])
def test_a_bad_key_is_refused(stage: Stage, key: str) -> None:
    job = stage.enqueue()
    claimed = stage.worker().claim_one()
    with pytest.raises(InvalidInput, match="key: "):
        queue.effect(stage.conn, job, claimed.token, key)
    assert queue.complete(stage.conn, job, claimed.token) == "done"


def test_effects_and_keys_outlive_the_job(stage: Stage) -> None:
    job = stage.enqueue(key="k")
    claimed = stage.worker().claim_one()
    queue.effect(stage.conn, job, claimed.token, "mail:1")
    queue.complete(stage.conn, job, claimed.token)
    stage.pass_time(timedelta(days=80).total_seconds())
    queue.maintain(stage.conn)
    assert stage.one("SELECT count(*) FROM jobqueue.jobs") == 0
    assert queue.enqueue(stage.conn, "c", "work", {}, key="k") == (job, False)
    other = stage.enqueue()
    assert queue.effect(stage.conn, other, stage.worker().claim_one().token, "mail:1") is False
    stage.pass_time(timedelta(days=11).total_seconds())
    queue.maintain(stage.conn)
    assert stage.one("SELECT count(*) FROM jobqueue.idempotency") == 0
    assert stage.one("SELECT count(*) FROM jobqueue.effect") == 0


def test_effects_and_keys_are_kept_while_the_job_is(stage: Stage) -> None:
    """A job that waits keeps its key and its effects, however old they are."""
    waiting = stage.enqueue(key="k")
    worker = stage.worker()
    claimed = worker.claim_one()
    queue.effect(stage.conn, waiting, claimed.token, "mail:1")
    queue.snooze(stage.conn, waiting, claimed.token, stage.one("SELECT clock_timestamp() + interval '100 days'"))
    stage.pass_time(timedelta(days=99).total_seconds())
    queue.maintain(stage.conn)
    assert queue.enqueue(stage.conn, "c", "work", {}, key="k") == (waiting, False)
    stage.pass_time(timedelta(days=2).total_seconds())
    again = stage.worker().claim_one()
    assert again.id == waiting
    assert queue.effect(stage.conn, waiting, again.token, "mail:1") is False


def test_effects_and_keys_are_kept_while_the_job_can_be_redriven(stage: Stage) -> None:
    stage.define("c", dead_retention_seconds=200 * 86400)
    dead = stage.enqueue(key="dead")
    claimed = stage.worker().claim_one()
    queue.effect(stage.conn, dead, claimed.token, "mail:1")
    queue.fail(stage.conn, dead, claimed.token, "boom", outcome="dead")
    stage.pass_time(timedelta(days=199).total_seconds())
    queue.maintain(stage.conn)
    assert queue.enqueue(stage.conn, "c", "work", {}, key="dead") == (dead, False)
    queue.redrive(stage.conn, [dead])
    assert queue.effect(stage.conn, dead, stage.worker().claim_one().token, "mail:1") is False


# --- checkpoints ---


def test_the_next_attempt_gets_the_last_checkpoint(stage: Stage) -> None:
    job = stage.enqueue()
    worker = stage.worker()
    claimed = worker.claim_one()
    assert claimed.checkpoint is None
    for page in (1, 2):
        queue.checkpoint(stage.conn, job, claimed.token, {"page": page})
    queue.release(stage.conn, job, claimed.token, reason="drain")
    again = worker.claim_one()
    assert again.checkpoint == {"page": 2}
    queue.fail(stage.conn, job, again.token, "boom", retry_after=timedelta(0))
    assert worker.claim_one().checkpoint == {"page": 2}


def test_a_checkpoint_survives_death_and_redrive(stage: Stage) -> None:
    job = stage.enqueue()
    worker = stage.worker()
    claimed = worker.claim_one()
    queue.checkpoint(stage.conn, job, claimed.token, [1])
    queue.fail(stage.conn, job, claimed.token, "boom", outcome="dead")
    queue.redrive(stage.conn, [job])
    assert worker.claim_one().checkpoint == [1]


def test_a_checkpoint_rolled_back_was_not_made(stage: Stage) -> None:
    job = stage.enqueue()
    claimed = stage.worker().claim_one()
    conn = stage.connect(autocommit=False)
    queue.checkpoint(conn, job, claimed.token, {"page": 1})
    conn.rollback()
    assert stage.one("SELECT count(*) FROM jobqueue.checkpoint") == 0
