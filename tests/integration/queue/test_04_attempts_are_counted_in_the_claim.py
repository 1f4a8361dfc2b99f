"""Invariant 4: the claim counts the attempt, releases give it back ten times at most, losses spend it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from jobqueue import queue

if TYPE_CHECKING:
    from integration.queue.stage import Stage, Worker

PAST = datetime(2020, 1, 1, tzinfo=UTC)


def test_the_claim_counts_the_attempt(stage: Stage) -> None:
    job = stage.enqueue(max_attempts=4)
    claimed = stage.worker().claim_one()
    assert (claimed.attempt, claimed.max_attempts) == (1, 4)
    assert stage.job(job)[:2] == ("running", 1)


@pytest.mark.parametrize("how", ["release", "snooze", "in turns"])
def test_ten_refunds_a_budget_and_then_each_is_spent(stage: Stage, how: str) -> None:
    job = stage.enqueue(max_attempts=3)
    worker = stage.worker()
    results = []
    for turn in range(13):
        claimed = worker.claim_one()
        if how == "release" or (how == "in turns" and turn % 2):
            results.append(queue.release(stage.conn, job, claimed.token, reason="drain"))
        else:
            results.append(queue.snooze(stage.conn, job, claimed.token, PAST))
    assert set(results[:10]) <= {"released", "snoozed"}
    assert results[10:] == ["spent", "spent", "dead"]
    assert stage.job(job)[:3] == ("dead", 3, "attempts used up")
    assert [a.number for a in stage.history(job)] == [1] * 11 + [2, 3]


def test_a_redrive_gives_new_refunds(stage: Stage) -> None:
    job = stage.enqueue(max_attempts=1)
    worker = stage.worker()
    for _ in range(11):
        queue.release(stage.conn, job, worker.claim_one().token, reason="drain")
    assert stage.status(job) == "dead"
    queue.redrive(stage.conn, [job])
    assert queue.release(stage.conn, job, worker.claim_one().token, reason="drain") == "released"
    assert stage.job(job)[:2] == ("pending", 0)


def test_failures_do_not_use_up_refunds(stage: Stage) -> None:
    job = stage.enqueue(max_attempts=3)
    worker = stage.worker()
    queue.fail(stage.conn, job, worker.claim_one().token, "boom", retry_after=timedelta(0))
    for _ in range(10):
        assert queue.release(stage.conn, job, worker.claim_one().token, reason="drain") == "released"
    claimed = worker.claim_one()
    assert claimed.attempt == 2
    assert queue.release(stage.conn, job, claimed.token, reason="drain") == "spent"


def test_a_vanished_worker_spends_the_attempts_of_all_it_held(stage: Stage) -> None:
    jobs = [stage.enqueue() for _ in range(3)]
    worker = stage.worker()
    assert len(worker.claim()) == 3
    assert queue.forget_worker(stage.conn, worker.id) == 3
    assert [stage.job(j)[:2] for j in jobs] == [("pending", 1)] * 3
    assert [a.outcome for a in stage.history(jobs[0])] == ["lost"]
    assert queue.forget_worker(stage.conn, worker.id) == 0


@pytest.mark.parametrize("how", ["sweep", "forget"])
def test_what_was_lost_comes_alone(stage: Stage, how: str) -> None:
    jobs = [stage.enqueue() for _ in range(3)]
    worker = stage.worker()
    worker.claim()
    if how == "sweep":
        stage.pass_time(61)
        assert stage.sweep().requeued == 3
    else:
        queue.forget_worker(stage.conn, worker.id)
    fresh = [stage.enqueue() for _ in range(3)]
    second = stage.worker()
    batches = [_claim_and_complete(stage, second) for _ in range(6)]
    alone = [batch for batch in batches if any(c.suspect for c in batch)]
    assert [len(batch) for batch in alone] == [1, 1, 1]
    assert sorted(batch[0].id for batch in alone) == jobs
    assert all(batch[0].attempt == 2 for batch in alone)
    [together] = [batch for batch in batches if len(batch) > 1]
    assert [c.id for c in together] == fresh


def _claim_and_complete(stage: Stage, worker: Worker) -> list[queue.Claimed]:
    batch = worker.claim()
    queue.complete_many(stage.conn, [c.id for c in batch], [c.token for c in batch])
    return batch


def test_a_worker_holds_one_suspect_at_a_time(stage: Stage) -> None:
    for _ in range(3):
        stage.enqueue()
    worker = stage.worker()
    worker.claim()
    queue.forget_worker(stage.conn, worker.id)
    second, third = stage.worker(), stage.worker()
    [first] = second.claim_any()
    assert second.claim_any() == []  # should it take the worker down, it takes no other suspect with it
    [other] = third.claim_any()
    assert other.id != first.id
    queue.complete(stage.conn, first.id, first.token)
    assert len(second.claim_any()) == 1


def test_neither_suspects_nor_others_starve(stage: Stage) -> None:
    for _ in range(5):
        stage.enqueue()
    worker = stage.worker()
    worker.claim()
    queue.forget_worker(stage.conn, worker.id)
    stage.enqueue_bulk(20)
    second = stage.worker()
    kinds = []
    for _ in range(10):
        [one] = second.claim(1)
        queue.complete(stage.conn, one.id, one.token)
        kinds.append(one.suspect)
    assert kinds[:4].count(True) == kinds[:4].count(False) == 2
    assert kinds.count(True) == kinds.count(False) == 5


@pytest.mark.parametrize(("ending", "suspect"), [("release", True), ("snooze", True), ("fail", False)])
def test_a_suspect_stays_one_until_it_has_run_to_an_end(stage: Stage, ending: str, suspect: bool) -> None:  # noqa: FBT001
    job = stage.enqueue()
    worker = stage.worker()
    worker.claim_one()
    stage.expire(job)
    stage.sweep()
    [claimed] = worker.claim_any()
    assert claimed.suspect
    if ending == "release":
        queue.release(stage.conn, job, claimed.token, reason="drain")
    elif ending == "snooze":
        queue.snooze(stage.conn, job, claimed.token, PAST)
    else:
        queue.fail(stage.conn, job, claimed.token, "boom", retry_after=timedelta(0))
    [again] = worker.claim_any()
    assert again.suspect is suspect


def test_a_poison_job_takes_no_neighbour_with_it(stage: Stage) -> None:
    """One job ends every worker that runs it: it alone is dead at the maximum, its neighbours were lost once."""
    poison = stage.enqueue(max_attempts=5)
    neighbours = [stage.enqueue(max_attempts=5) for _ in range(15)]
    for turn in range(200):
        worker = stage.worker(name=f"incarnation-{turn}")
        batch = worker.claim_any(16)
        if not batch:
            break
        if poison in {c.id for c in batch}:
            queue.forget_worker(stage.conn, worker.id)
        else:
            queue.complete_many(stage.conn, [c.id for c in batch], [c.token for c in batch])
    assert stage.job(poison)[:3] == ("dead", 5, "worker lost")
    assert {stage.job(j)[:2] for j in neighbours} == {("done", 2)}
