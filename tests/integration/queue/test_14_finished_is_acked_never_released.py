"""Invariant 14: a finished job is acknowledged, never released, even at the last moment of a drain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jobqueue import queue
from jobqueue.errors import StaleLease

if TYPE_CHECKING:
    from integration.queue.stage import Stage


def test_a_release_after_the_completion_changes_nothing(stage: Stage) -> None:
    job = stage.enqueue()
    claimed = stage.worker().claim_one()
    assert queue.complete(stage.conn, job, claimed.token) == "done"
    [answer] = queue.release_many(stage.conn, [job], [claimed.token], reason="drain")
    assert answer.result == "stale"
    with pytest.raises(StaleLease):
        queue.release(stage.conn, job, claimed.token, reason="drain")
    assert stage.job(job)[:2] == ("done", 1)


def test_a_release_that_meets_the_completion_under_way_yields(stage: Stage) -> None:
    job = stage.enqueue()
    claimed = stage.worker().claim_one()
    finishing, draining = stage.connect(autocommit=False), stage.connect()
    assert queue.complete(finishing, job, claimed.token) == "done"
    released = stage.background(queue.release_many, draining, [job], [claimed.token], reason="drain")
    stage.wait_until_blocked()
    finishing.commit()
    assert [a.result for a in released.result(20)] == ["stale"]
    assert stage.status(job) == "done"


def test_a_completion_that_meets_the_release_under_way_is_told(stage: Stage) -> None:
    """The effect goes with the refused completion: the job runs again, and nothing was done twice."""
    job = stage.enqueue()
    claimed = stage.worker().claim_one()
    draining, finishing = stage.connect(autocommit=False), stage.connect(autocommit=False)
    assert queue.release(draining, job, claimed.token, reason="drain") == "released"
    late = stage.background(queue.complete, finishing, job, claimed.token)
    stage.wait_until_blocked()
    draining.commit()
    with pytest.raises(StaleLease):
        late.result(20)
    assert stage.job(job)[:2] == ("pending", 0)


def test_a_drain_waits_for_the_transaction_of_a_job_that_is_finishing(stage: Stage) -> None:
    """Between effect and completion the lease is held: a release from outside cannot come between."""
    job = stage.enqueue()
    claimed = stage.worker().claim_one()
    finishing, draining = stage.connect(autocommit=False), stage.connect()
    assert queue.effect(finishing, job, claimed.token, "mail:1") is True
    released = stage.background(queue.release_many, draining, [job], [claimed.token], reason="drain")
    stage.wait_until_blocked()
    finishing.rollback()
    assert [a.result for a in released.result(20)] == ["released"]
    assert stage.one("SELECT count(*) FROM jobqueue.effect") == 0


def test_a_cancelled_or_paused_or_retired_job_may_still_finish(stage: Stage) -> None:
    job = stage.enqueue()
    worker = stage.worker()
    claimed = worker.claim_one()
    assert queue.cancel(stage.conn, job) == "requested"
    queue.set_paused(stage.admin, None, "c", paused=True)
    queue.retire_worker(stage.admin, None, [worker.id])
    assert queue.complete(stage.conn, job, claimed.token) == "done"


def test_a_batch_of_both_at_the_last_moment(stage: Stage) -> None:
    """A worker that acknowledges and releases everything it held leaves each job in one place."""
    jobs = [stage.enqueue() for _ in range(6)]
    batch = stage.worker().claim()
    tokens = [c.token for c in batch]
    assert {a.result for a in queue.complete_many(stage.conn, jobs[:3], tokens[:3])} == {"done"}
    results = [a.result for a in queue.release_many(stage.conn, jobs, tokens, reason="drain")]
    assert results == ["stale"] * 3 + ["released"] * 3
    assert [stage.status(j) for j in jobs] == ["done"] * 3 + ["pending"] * 3
