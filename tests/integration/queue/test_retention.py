"""Maintenance: partitions ahead, old jobs away with all that is theirs, and no writer ever held up or failed by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jobqueue import queue
from jobqueue.queue import NewJob

if TYPE_CHECKING:
    from integration.queue.stage import Stage

DAY = 86_400.0


def _end(stage: Stage, how: str) -> int:
    job = stage.enqueue()
    claimed = stage.worker().claim_one()
    if how == "done":
        queue.complete(stage.conn, job, claimed.token)
    else:
        queue.fail(stage.conn, job, claimed.token, "boom", outcome=how)
    return job


def _kept(stage: Stage) -> list[int]:
    return [row[0] for row in stage.admin.execute("SELECT id FROM jobqueue.jobs ORDER BY id")]


def _at(stage: Stage, next_id: int) -> None:
    """Let that many ids have been handed out."""
    stage.admin.execute("SELECT setval('jobqueue.job_id', %s)", [next_id])


def _partitions(stage: Stage, parent: str = "body") -> list[str]:
    rows = stage.admin.execute(
        "SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE inhparent = %s::regclass ORDER BY oid",
        [f"jobqueue.{parent}"],
    )
    return [row[0] for row in rows]


def test_done_goes_after_a_week_and_dead_after_a_month(own: Stage) -> None:
    done, dead, cancelled = (_end(own, how) for how in ("done", "dead", "cancelled"))
    waiting = own.enqueue(kind="unknown")
    for days, left in ((6.9, [done, dead, cancelled, waiting]), (0.2, [dead, cancelled, waiting]), (23, [waiting])):
        own.pass_time(days * DAY)
        queue.maintain(own.conn)
        assert _kept(own) == left
    own.pass_time(400 * DAY)
    queue.maintain(own.conn)
    assert _kept(own) == [waiting]


def test_each_class_has_its_own_retention(own: Stage) -> None:
    own.define("c", done_retention_seconds=3600, dead_retention_seconds=7200)
    done, dead = _end(own, "done"), _end(own, "dead")
    assert queue.maintain(own.conn) is not None
    assert _kept(own) == [done, dead]
    own.pass_time(3700)
    queue.maintain(own.conn)
    assert _kept(own) == [dead]
    own.pass_time(3700)
    queue.maintain(own.conn)
    assert _kept(own) == []


def test_attempts_and_checkpoints_go_with_the_job(own: Stage) -> None:
    job = own.enqueue()
    worker = own.worker()
    claimed = worker.claim_one()
    queue.checkpoint(own.conn, job, claimed.token, {"page": 1})
    queue.release(own.conn, job, claimed.token, reason="drain")
    queue.complete(own.conn, job, worker.claim_one().token)
    assert len(own.history(job)) == 2
    own.pass_time(8 * DAY)
    [said] = [m for m in queue.maintain(own.conn) if m.action == "retention"]
    assert said.rows == 1
    for table in ("body", "outcome", "attempt", "checkpoint", "attempts"):
        assert own.one(f"SELECT count(*) FROM jobqueue.{table}") == 0, table  # noqa: S608


def test_a_redriven_job_counts_from_its_new_end(own: Stage) -> None:
    job = _end(own, "dead")
    own.pass_time(29 * DAY)
    queue.redrive(own.conn, [job])
    own.pass_time(5 * DAY)
    queue.maintain(own.conn)
    assert _kept(own) == [job]


def test_partitions_are_made_ahead(own: Stage) -> None:
    before = _partitions(own)
    _at(own, 5_000_000)
    queue.maintain(own.conn)
    assert len(_partitions(own)) == len(before) + 1
    for parent in ("body", "outcome", "attempt"):
        assert len(_partitions(own, parent)) == len(_partitions(own))
    assert own.one("SELECT max(upper) FROM jobqueue.id_range") - 5_000_000 >= 10_000_000
    assert [m for m in queue.maintain(own.conn) if m.action == "partition"] == []


def test_the_default_partition_takes_what_no_range_holds(own: Stage) -> None:
    """A maintenance months late: every verb goes on, and later ranges begin above what was handed out."""
    _at(own, 50_000_000)
    job = own.enqueue(key="k")
    assert own.one("SELECT tableoid::regclass::text FROM jobqueue.body WHERE id = %s", [job]) == "jobqueue.body_default"
    worker = own.worker()
    queue.release(own.conn, job, worker.claim_one().token, reason="drain")
    queue.complete(own.conn, job, worker.claim_one().token)
    assert len(own.history(job)) == 2
    queue.maintain(own.conn)
    assert own.one("SELECT max(lower) FROM jobqueue.id_range") > job
    _at(own, own.one("SELECT max(lower) FROM jobqueue.id_range"))
    after = own.enqueue()
    assert (
        own.one("SELECT tableoid::regclass::text FROM jobqueue.body WHERE id = %s", [after]) != "jobqueue.body_default"
    )
    own.pass_time(8 * DAY)
    queue.maintain(own.conn)
    assert job not in _kept(own)


def _fill_first_range(stage: Stage) -> dict[str, int]:
    """Put jobs of every state in the first range, and hand out every id of it."""
    jobs = {how: _end(stage, how) for how in ("done", "dead", "cancelled")}
    jobs["running"] = stage.enqueue()
    stage.worker(name="runner").claim_one(lease=stage.one("SELECT interval '1 day'"))
    jobs["waiting"] = stage.enqueue(kind="unknown")
    _at(stage, 1_000_001)
    queue.maintain(stage.conn)
    assert stage.one("SELECT closed_at IS NOT NULL FROM jobqueue.id_range WHERE lower = 0") is True
    return jobs


def test_an_old_range_is_dropped_and_survivors_move(own: Stage) -> None:
    jobs = _fill_first_range(own)
    own.pass_time(8 * DAY)
    said = [m.detail for m in queue.maintain(own.conn) if m.action == "partition"]
    assert said == ["range from 0: dropped, 4 survivors moved"]
    assert "body_0" not in _partitions(own)
    assert _kept(own) == sorted(jobs[k] for k in ("dead", "cancelled", "running", "waiting"))
    assert len(own.history(jobs["dead"])) == 1
    queue.redrive(own.conn, [jobs["dead"]])
    own.admin.execute("UPDATE jobqueue.worker SET seen_at = clock_timestamp()")
    claimed = own.worker().claim_one()
    assert claimed.id == jobs["dead"]
    queue.complete(own.conn, claimed.id, claimed.token)
    own.pass_time(30 * DAY)
    own.sweep()
    queue.maintain(own.conn)
    assert _kept(own) == sorted([jobs["running"], jobs["waiting"]])


@pytest.mark.parametrize("verb", ["enqueue", "enqueue_many", "complete", "claim"])
def test_a_write_in_flight_is_neither_waited_for_nor_failed(own: Stage, verb: str) -> None:
    """While a transaction of the business holds the parents, maintenance puts the drop off, and does it later."""
    jobs = _fill_first_range(own)
    own.pass_time(8 * DAY)
    job = own.enqueue()
    worker = own.worker(conn=own.connect(autocommit=False))
    business = worker.conn
    if verb == "complete":
        claimed = own.worker().claim_one()
        queue.complete(business, job, claimed.token)
    elif verb == "claim":
        worker.claim()
    elif verb == "enqueue":
        queue.enqueue(business, "c", "work", {})
    else:
        queue.enqueue_many(business, [NewJob("c", "work", {})] * 3)
    keeping = own.connect()
    done = own.background(queue.maintain, keeping).result(20)
    assert [m.detail for m in done if m.action == "partition"] == ["range from 0: in use; next time"]
    assert "body_0" in _partitions(own)
    other = own.connect()
    other.execute("SET lock_timeout = '2s'")
    assert queue.enqueue(other, "c", "work", {}).created
    business.commit()
    assert [m.detail for m in queue.maintain(own.conn) if m.action == "partition"] == [
        "range from 0: dropped, 4 survivors moved"
    ]
    assert jobs["done"] not in _kept(own)


def test_a_new_partition_is_put_off_while_the_default_one_is_in_use(own: Stage) -> None:
    _at(own, 50_000_000)
    business = own.connect(autocommit=False)
    queue.enqueue(business, "c", "work", {})
    done = own.background(queue.maintain, own.connect()).result(20)
    assert all(m.rows == 0 for m in done if m.action == "partition")
    business.commit()
    assert any(m.rows == 1 for m in queue.maintain(own.conn) if m.action == "partition")


def test_an_enqueue_is_not_held_up_by_a_maintenance_under_way(own: Stage) -> None:
    _end(own, "done")
    own.pass_time(8 * DAY)
    keeping, producing = own.connect(autocommit=False), own.connect()
    assert any(m.action == "retention" for m in queue.maintain(keeping))
    producing.execute("SET lock_timeout = '2s'")
    assert queue.enqueue(producing, "c", "work", {}).created
    keeping.rollback()


def test_two_at_once_is_one(own: Stage) -> None:
    first = own.connect(autocommit=False)
    queue.maintain(first)
    assert queue.maintain(own.conn) == []
    first.rollback()


def test_a_range_with_many_survivors_is_kept(own: Stage) -> None:
    own.fill(10_500, kind="unknown")
    _at(own, 1_000_001)
    queue.maintain(own.conn)
    own.pass_time(40 * DAY)
    said = [m.detail for m in queue.maintain(own.conn) if m.action == "partition"]
    assert said == ["range from 0: kept: more than 10000 of its jobs must survive"]
    assert own.one("SELECT count(*) FROM jobqueue.body_0") == 10_500


def test_deletions_are_bounded_and_go_on(own: Stage) -> None:
    own.define("c", done_retention_seconds=60)
    own.fill(45_000)
    own.admin.execute(
        "WITH gone AS (DELETE FROM jobqueue.ready RETURNING id, class_id)"
        " INSERT INTO jobqueue.outcome (id, finished_at, class_id, attempts, refunds, budget, status)"
        " SELECT id, clock_timestamp(), class_id, 1, 0, 0, 'd' FROM gone"
    )
    own.pass_time(100)
    rows = [sum(m.rows for m in queue.maintain(own.conn) if m.action == "retention") for _ in range(4)]
    assert rows == [20_000, 20_000, 5_000, 0]


def test_old_jobs_behind_kept_ones_are_reached(own: Stage) -> None:
    """A long row of dead ones, kept for a month, does not hide the done ones behind it."""
    own.fill(25_000)
    own.admin.execute(
        "WITH gone AS (DELETE FROM jobqueue.ready RETURNING id, class_id)"
        " INSERT INTO jobqueue.outcome (id, finished_at, class_id, attempts, refunds, budget, status)"
        " SELECT id, clock_timestamp(), class_id, 1, 0, 0, 'x' FROM gone"
    )
    done = _end(own, "done")
    own.pass_time(8 * DAY)
    for _ in range(3):
        queue.maintain(own.conn)
    assert done not in _kept(own)
    assert own.one("SELECT count(*) FROM jobqueue.body") == 25_000


def test_the_first_maintenance_of_a_quiet_queue_does_nothing(own: Stage) -> None:
    queue.maintain(own.conn)
    assert queue.maintain(own.conn) == []
