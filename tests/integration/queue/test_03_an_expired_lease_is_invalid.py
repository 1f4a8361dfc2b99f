"""Invariant 3: a lease is over from its instant, swept or not; what holds it, holds it against the sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from integration.queue.test_02_every_write_names_its_token import BATCH, SINGLE, TRACES
from jobqueue import queue
from jobqueue.errors import StaleLease
from services.waiting import eventually

if TYPE_CHECKING:
    from integration.queue.stage import Connection, Stage, Worker

NO_ONE_WAITS = "SET lock_timeout = '2s'"


@pytest.mark.parametrize("swept", ["unswept", "swept"])
@pytest.mark.parametrize("write", SINGLE)
def test_every_write_is_refused_after_the_end(stage: Stage, write: str, swept: str) -> None:
    job = stage.enqueue()
    claimed = stage.worker().claim_one()
    stage.expire(job)
    if swept == "swept":
        assert stage.sweep().requeued == 1
    traces = stage.one(TRACES)
    with pytest.raises(StaleLease):
        SINGLE[write](stage.conn, job, claimed.token)
    assert stage.one(TRACES) == traces
    assert stage.status(job) == ("pending" if swept == "swept" else "running")


@pytest.mark.parametrize("write", BATCH)
def test_an_expired_row_of_a_batch_is_stale(stage: Stage, write: str) -> None:
    jobs = [stage.enqueue() for _ in range(2)]
    claimed = stage.worker().claim()
    stage.expire(jobs[0])
    results = [row.result for row in BATCH[write](stage.conn, jobs, [c.token for c in claimed])]
    assert results[0] == "stale"
    assert results[1] != "stale"


def test_an_expired_lease_is_not_extended(stage: Stage) -> None:
    job = stage.enqueue()
    worker = stage.worker()
    claimed = worker.claim_one()
    stage.expire(job)
    [answer] = queue.extend(stage.conn, worker.id, [job], [claimed.token])
    assert answer.result == "stale"
    assert stage.sweep().requeued == 1


def _let_it_end(stage: Stage, job: int) -> None:
    """Wait for the database's clock to pass the end of the lease."""
    eventually(
        lambda: stage.one("SELECT leased_until <= clock_timestamp() FROM jobqueue.lease WHERE id = %s", [job]),
        what="the lease's end",
    )


@pytest.mark.parametrize("write", ["complete", "fail", "release", "snooze"])
def test_the_clock_is_read_after_the_row_is_locked(direct: Stage, write: str) -> None:
    """An acknowledgement sent in time waits for the row beyond the lease's end: it is late."""
    job = direct.enqueue()
    claimed = direct.worker().claim_one(lease=_brief(direct))
    holder = direct.connect(autocommit=False, dsn=direct.database.direct)
    holder.execute("SELECT FROM jobqueue.lease WHERE id = %s FOR KEY SHARE", [job])
    waiting = direct.connect()
    answer = direct.background(lambda: SINGLE[write](waiting, job, claimed.token))
    direct.wait_until_blocked()
    assert direct.one("SELECT leased_until > clock_timestamp() FROM jobqueue.lease") is True
    _let_it_end(direct, job)
    holder.commit()
    with pytest.raises(StaleLease):
        answer.result(20)
    assert direct.one(TRACES) == 0


@pytest.mark.parametrize("write", ["effect", "checkpoint"])
def test_the_clock_is_read_after_a_shared_lock_too(direct: Stage, write: str) -> None:
    job = direct.enqueue()
    claimed = direct.worker().claim_one(lease=_brief(direct))
    holder = direct.connect(autocommit=False, dsn=direct.database.direct)
    holder.execute("SELECT FROM jobqueue.lease WHERE id = %s FOR UPDATE", [job])
    waiting = direct.connect()
    answer = direct.background(lambda: SINGLE[write](waiting, job, claimed.token))
    direct.wait_until_blocked()
    _let_it_end(direct, job)
    holder.commit()
    with pytest.raises(StaleLease):
        answer.result(20)
    assert direct.one(TRACES) == 0


def _brief(stage: Stage) -> object:
    return stage.one("SELECT interval '1 second'")


def _in_effect(stage: Stage) -> tuple[Connection, Worker, queue.Claimed]:
    stage.enqueue()
    worker = stage.worker()
    claimed = worker.claim_one()
    conn = stage.connect(autocommit=False)
    assert queue.effect(conn, claimed.id, claimed.token, "mail:1") is True
    return conn, worker, claimed


def test_the_sweep_leaves_a_lease_that_an_effect_holds(stage: Stage) -> None:
    conn, _, claimed = _in_effect(stage)
    stage.expire(claimed.id)
    assert stage.sweep() == (0, 0, 0, 0)
    with pytest.raises(StaleLease):
        queue.complete(conn, claimed.id, claimed.token)
    conn.rollback()
    assert stage.one("SELECT count(*) FROM jobqueue.effect") == 0
    assert stage.sweep().requeued == 1


def test_a_heartbeat_goes_on_beside_an_effect(stage: Stage) -> None:
    conn, worker, claimed = _in_effect(stage)
    stage.admin.execute(NO_ONE_WAITS)
    [renewed] = queue.extend(stage.conn, worker.id, [claimed.id], [claimed.token])
    assert renewed.result == "extended"
    assert queue.complete(conn, claimed.id, claimed.token) == "done"
    conn.commit()
    assert stage.status(claimed.id) == "done"


def test_after_complete_the_lease_may_end_before_the_commit(direct: Stage) -> None:
    job = direct.enqueue()
    claimed = direct.worker().claim_one(lease=_brief(direct))
    conn = direct.connect(autocommit=False)
    assert queue.effect(conn, job, claimed.token, "mail:1") is True
    assert queue.complete(conn, job, claimed.token) == "done"
    _let_it_end(direct, job)
    assert direct.sweep() == (0, 0, 0, 0)
    conn.commit()
    assert direct.status(job) == "done"
    assert direct.one("SELECT count(*) FROM jobqueue.effect") == 1


def test_extend_does_not_wait_for_a_row_being_acknowledged(stage: Stage) -> None:
    jobs = [stage.enqueue() for _ in range(2)]
    worker = stage.worker()
    claimed = worker.claim()
    conn = stage.connect(autocommit=False)
    queue.complete(conn, jobs[0], claimed[0].token)
    heartbeats = stage.connect()
    answers = stage.background(lambda: queue.extend(heartbeats, worker.id, jobs, [c.token for c in claimed]))
    assert [e.result for e in answers.result(10)] == ["busy", "extended"]
    conn.commit()
    assert [e.result for e in queue.extend(stage.conn, worker.id, jobs, [c.token for c in claimed])] == [
        "stale",
        "extended",
    ]


@pytest.mark.parametrize("write", BATCH)
def test_acknowledgements_lock_in_the_order_of_ids(stage: Stage, write: str) -> None:
    """Blocked on the lowest id, a batch given backwards holds none of the others, so that two cannot deadlock."""
    jobs = [stage.enqueue() for _ in range(4)]
    claimed = stage.worker().claim()
    holder = stage.connect(autocommit=False, dsn=stage.database.direct)
    holder.execute("SELECT FROM jobqueue.lease WHERE id = %s FOR UPDATE", [jobs[0]])
    waiting = stage.connect()
    backwards = sorted(claimed, reverse=True)
    answer = stage.background(lambda: BATCH[write](waiting, [c.id for c in backwards], [c.token for c in backwards]))
    stage.wait_until_blocked()
    free = stage.one(
        "SELECT count(*) FROM (SELECT FROM jobqueue.lease WHERE id <> %s FOR UPDATE SKIP LOCKED) x", [jobs[0]]
    )
    assert free == 3
    holder.commit()
    assert "stale" not in {row.result for row in answer.result(20)}


def test_two_batches_in_opposite_orders_do_not_deadlock(stage: Stage) -> None:
    jobs = [stage.enqueue() for _ in range(200)]
    claimed = stage.worker().claim(200)
    tokens = {c.id: c.token for c in claimed}
    conns = [stage.connect() for _ in range(4)]
    orders = [jobs, jobs[::-1], jobs[100:] + jobs[:100], jobs[::-1]]

    def acknowledge(conn: Connection, order: list[int]) -> list[str]:
        return [row.result for row in queue.complete_many(conn, order, [tokens[j] for j in order])]

    running = [stage.background(acknowledge, conn, order) for conn, order in zip(conns, orders, strict=True)]
    results = [result for each in running for result in each.result(20)]
    assert results.count("done") == 200
    assert results.count("already") == 600


def test_claims_do_not_wait_for_each_other(stage: Stage) -> None:
    jobs = [stage.enqueue() for _ in range(4)]
    first, second = (stage.worker(conn=stage.connect(autocommit=False)) for _ in range(2))
    second.conn.execute("SET LOCAL lock_timeout = '2s'")
    assert [c.id for c in first.claim(2)] == jobs[:2]
    assert [c.id for c in second.claim(2)] == jobs[2:]
    first.conn.commit()
    second.conn.commit()


def test_claims_from_many_connections_never_share_a_job(stage: Stage) -> None:
    stage.enqueue_bulk(400)
    workers = [stage.worker(conn=stage.connect()) for _ in range(4)]

    def drain(worker: Worker) -> list[int]:
        got: list[int] = []
        while batch := worker.claim(7):
            got += [c.id for c in batch]
        return got

    running = [stage.background(drain, worker) for worker in workers]
    got = [job for each in running for job in each.result(30)]
    assert len(got) == len(set(got)) == 400
