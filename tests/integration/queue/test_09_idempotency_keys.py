"""Invariant 9: one job for a (kind, key); never «duplicate» with no job behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from jobqueue import queue
from jobqueue.errors import KeyConflict
from jobqueue.queue import NewJob

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.queue.stage import Stage

JOBS = "SELECT count(*)::int FROM jobqueue.jobs"


def test_the_same_key_and_payload_is_the_same_job(stage: Stage) -> None:
    first = queue.enqueue(stage.conn, "c", "work", {"a": 1, "b": 2}, key="k")
    assert first.created
    assert queue.enqueue(stage.conn, "c", "work", {"b": 2, "a": 1}, key="k") == (first.id, False)
    assert stage.one(JOBS) == 1


def test_another_payload_is_refused_and_names_the_job(stage: Stage) -> None:
    first = queue.enqueue(stage.conn, "c", "work", {"a": 1}, key="k")
    with pytest.raises(KeyConflict, match=f"'k' of kind 'work' belongs to job {first.id}"):
        queue.enqueue(stage.conn, "c", "work", {"a": 2}, key="k")
    assert stage.one(JOBS) == 1


def test_a_key_belongs_to_its_kind(stage: Stage) -> None:
    assert queue.enqueue(stage.conn, "c", "work", {}, key="k").created
    assert queue.enqueue(stage.conn, "c", "other", {"x": 1}, key="k").created
    assert queue.enqueue(stage.conn, "c", "work", {}).created
    assert stage.one(JOBS) == 3


@pytest.mark.parametrize("ending", ["done", "dead", "cancelled", "running"])
def test_the_key_is_kept_while_the_record_is(stage: Stage, ending: str) -> None:
    job = stage.enqueue(key="k")
    claimed = stage.worker().claim_one()
    if ending == "done":
        queue.complete(stage.conn, job, claimed.token)
    elif ending != "running":
        queue.fail(stage.conn, job, claimed.token, "boom", outcome=ending)
    assert queue.enqueue(stage.conn, "c", "work", {}, key="k") == (job, False)
    with pytest.raises(KeyConflict):
        queue.enqueue(stage.conn, "c", "work", {"n": 2}, key="k")


@pytest.mark.parametrize("verb", ["enqueue", "enqueue_many"])
@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_an_uncommitted_twin_is_waited_for(stage: Stage, ending: str, verb: str) -> None:
    first = stage.connect(autocommit=False)
    twin = queue.enqueue(first, "c", "work", {}, key="k")
    second = stage.connect()

    def enqueue() -> queue.Enqueued:
        if verb == "enqueue":
            return queue.enqueue(second, "c", "work", {}, key="k")
        return queue.enqueue_many(second, [NewJob("c", "work", {}, key="k")])[0]

    answer = stage.background(enqueue)
    stage.wait_until_blocked()
    getattr(first, ending)()
    got = answer.result(20)
    assert got.created is (ending == "rollback")
    assert (got.id == twin.id) is (ending == "commit")
    assert stage.one(JOBS) == 1
    assert stage.status(got.id) == "pending"


@pytest.mark.parametrize("verb", ["enqueue", "enqueue_many"])
def test_a_twin_with_another_payload_is_a_conflict_once_committed(stage: Stage, verb: str) -> None:
    first = stage.connect(autocommit=False)
    queue.enqueue(first, "c", "work", {"n": 1}, key="k")
    second = stage.connect()

    def enqueue() -> object:
        if verb == "enqueue":
            return queue.enqueue(second, "c", "work", {"n": 2}, key="k")
        return queue.enqueue_many(second, [NewJob("c", "work", {"n": 2}, key="k")])

    answer = stage.background(enqueue)
    stage.wait_until_blocked()
    first.commit()
    with pytest.raises(KeyConflict):
        answer.result(20)


@pytest.mark.parametrize("verb", ["enqueue", "enqueue_many"])
def test_under_repeatable_read_a_twin_is_a_serialization_error(stage: Stage, verb: str) -> None:
    second = stage.connect(autocommit=False)
    second.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    second.execute("SELECT 1")  # the snapshot
    queue.enqueue(stage.conn, "c", "work", {}, key="k")
    twin: dict[str, Callable[[], object]] = {
        "enqueue": lambda: queue.enqueue(second, "c", "work", {}, key="k"),
        "enqueue_many": lambda: queue.enqueue_many(second, [NewJob("c", "work", {}, key="k")]),
    }
    with pytest.raises(psycopg.errors.SerializationFailure):
        twin[verb]()
    second.rollback()
    assert queue.enqueue(second, "c", "work", {}, key="k").created is False
    second.commit()


def test_many_producers_at_once_make_one_job_a_key(stage: Stage) -> None:
    conns = [stage.connect() for _ in range(6)]

    def produce(conn: object) -> list[queue.Enqueued]:
        assert isinstance(conn, psycopg.Connection)
        return [queue.enqueue(conn, "c", "work", {"n": n}, key=f"k{n}") for n in range(40)]

    answers = [each.result(30) for each in [stage.background(produce, conn) for conn in conns]]
    for n in range(40):
        assert len({answer[n].id for answer in answers}) == 1
        assert sum(answer[n].created for answer in answers) == 1
    assert stage.one(JOBS) == 40


# --- enqueue_many ---


def test_duplicates_within_one_call(stage: Stage) -> None:
    jobs = [NewJob("c", "work", {}, key=k) for k in ("b", "a", "b", None, "a", None)]
    got = queue.enqueue_many(stage.conn, jobs)
    assert [e.created for e in got] == [True, True, False, True, False, True]
    assert got[0].id == got[2].id
    assert got[1].id == got[4].id
    assert len({e.id for e in got}) == 4
    assert stage.one(JOBS) == 4


def test_duplicates_within_one_call_that_differ_are_a_conflict(stage: Stage) -> None:
    jobs = [NewJob("c", "work", {"n": n}, key="k") for n in (1, 2)]
    with pytest.raises(KeyConflict, match=r"jobs\[1\]\.key"):
        queue.enqueue_many(stage.conn, jobs)
    assert stage.one(JOBS) == 0


def test_old_and_new_keys_in_one_call_keep_their_places(stage: Stage) -> None:
    old = stage.enqueue(key="k1")
    got = queue.enqueue_many(stage.conn, [NewJob("c", "work", {}, key=f"k{n}") for n in range(3)])
    assert [e.created for e in got] == [True, False, True]
    assert got[1].id == old
    with pytest.raises(KeyConflict, match=r"jobs\[2\]\.key: 'k1' .*belongs to job"):
        queue.enqueue_many(
            stage.conn,
            [NewJob("c", "work", {}, key="x"), NewJob("c", "work", {}), NewJob("c", "work", {"n": 1}, key="k1")],
        )
    assert stage.one("SELECT count(*) FROM jobqueue.idempotency WHERE key = 'x'") == 0


def test_calls_with_the_same_keys_in_opposite_orders_do_not_deadlock(stage: Stage) -> None:
    jobs = [NewJob("c", "work", {}, key=f"k{n:03}") for n in range(300)]
    conns = [stage.connect() for _ in range(4)]
    orders = [jobs, jobs[::-1], jobs[150:] + jobs[:150], jobs[::-1]]
    running = [stage.background(queue.enqueue_many, conn, order) for conn, order in zip(conns, orders, strict=True)]
    answers = [each.result(30) for each in running]
    assert sum(e.created for answer in answers for e in answer) == 300
    assert stage.one(JOBS) == 300


def test_keys_are_inserted_in_their_order(stage: Stage) -> None:
    """Blocked on the first key, a call given backwards holds none of the others."""
    holder = stage.connect(autocommit=False)
    queue.enqueue(holder, "c", "work", {}, key="k0")
    blocked = stage.connect()
    backwards = [NewJob("c", "work", {}, key=f"k{n}") for n in (3, 2, 1, 0)]
    answer = stage.background(queue.enqueue_many, blocked, backwards)
    stage.wait_until_blocked()
    free = stage.connect()
    free.execute("SET lock_timeout = '3s'")
    assert queue.enqueue(free, "c", "work", {}, key="k3").created
    holder.rollback()
    assert [e.created for e in answer.result(20)] == [False, True, True, True]


def test_a_deadlock_across_calls_of_one_transaction_is_retryable(stage: Stage) -> None:
    first, second = stage.connect(autocommit=False), stage.connect(autocommit=False)
    queue.enqueue(first, "c", "work", {}, key="a")
    queue.enqueue(second, "c", "work", {}, key="b")
    crossed = stage.background(queue.enqueue, first, "c", "work", {}, key="b")
    stage.wait_until_blocked()
    try:
        queue.enqueue(second, "c", "work", {}, key="a")
        victim, survivor = first, second
        with pytest.raises(psycopg.errors.DeadlockDetected):
            crossed.result(20)
    except psycopg.errors.DeadlockDetected:
        victim, survivor = second, first
        victim.rollback()
        assert crossed.result(20).created
    survivor.commit()
    victim.rollback()
    assert queue.enqueue(victim, "c", "work", {}, key="a").created is False
    victim.commit()
