"""What became due, by when: exact where it is few, estimated where it is much, and never negative."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from jobqueue import queue
from jobqueue.errors import InvalidInput
from jobqueue.signals import decode

if TYPE_CHECKING:
    from integration.queue.stage import Stage
    from jobqueue.signals import ArrivalSnapshot


def arrivals(stage: Stage, class_: str = "c", tick: float = 5.0) -> ArrivalSnapshot:
    """Return the arrivals of a class over a tick, two ticks, 20 s and 60 s."""
    found = decode(queue.snapshot(stage.conn, tick=tick)).find(class_)
    assert found is not None
    return found.arrivals


def enqueue_in(stage: Stage, seconds: float, **options: Any) -> int:
    """Enqueue one job that is due in so many seconds."""
    return stage.enqueue(run_after=stage.one("SELECT clock_timestamp()") + timedelta(seconds=seconds), **options)


def created_ago(stage: Stage, class_: str, rows: int, seconds: float, *, every: int = 1, ended: bool = True) -> None:
    """Write bodies whose creation is spread evenly over the last seconds; `every` second id (and so on) is a gap."""
    stage.admin.execute(
        """
        WITH n AS MATERIALIZED (
          SELECT nextval('jobqueue.job_id') AS id, g FROM generate_series(1, %(n)s * %(every)s) AS g
        ), b AS (
          INSERT INTO jobqueue.body (id, created_at, version, class_id, priority, max_attempts, kind, payload)
          SELECT n.id, clock_timestamp() - make_interval(secs => %(s)s - (%(s)s - 0.5) * g / (%(n)s * %(every)s)), 1,
                 (SELECT c.id FROM jobqueue.class c WHERE c.name = %(c)s), 0, 10, 'work', '{}'
            FROM n WHERE g %% %(every)s = 0 RETURNING id, created_at, class_id)
        INSERT INTO jobqueue.ready
          (id, run_after, lane, kind_version, class_id, priority, tenant_hash, key_hash, attempts, refunds, budget)
        SELECT b.id, b.created_at, 0, jobqueue.kind_version('work', 1), b.class_id, 0, 0, 0, 0, 0, 0
          FROM b WHERE NOT %(ended)s
        """,
        {"n": rows, "c": class_, "s": seconds, "every": every, "ended": ended},
    )


def test_nothing_arrived(stage: Stage) -> None:
    found = arrivals(stage)
    assert (found.created, found.again, found.estimated) == ((0, 0, 0, 0), (0, 0, 0, 0), False)


def test_a_few_are_counted_exactly_whatever_became_of_them(stage: Stage) -> None:
    for count, pause in ((5, 45), (4, 30), (3, 8), (2, 7), (1, 0)):
        stage.enqueue_bulk(count)
        stage.pass_time(pause)
    assert arrivals(stage).created == (1, 3, 6, 10)
    worker = stage.worker()
    batch = worker.claim(100)
    queue.complete_many(stage.conn, [c.id for c in batch[:7]], [c.token for c in batch[:7]])
    found = arrivals(stage)
    assert (found.created, found.again, found.estimated) == ((1, 3, 6, 10), (0, 0, 0, 0), False)


def test_the_ticks_are_as_long_as_the_caller_says(stage: Stage) -> None:
    for count, pause in ((4, 1), (2, 1), (1, 0)):
        stage.enqueue_bulk(count)
        stage.pass_time(pause)
    assert arrivals(stage, tick=0.9).created == (1, 3, 7, 7)
    assert arrivals(stage, tick=1.9).created == (3, 7, 7, 7)
    assert arrivals(stage, tick=10).created == (7, 7, 7, 7)
    for wrong in (0.0, 10.5, float("nan")):
        with pytest.raises(InvalidInput, match="tick: "):
            queue.snapshot(stage.conn, tick=wrong)


def test_a_batch_that_straddles_a_tick_is_in_both(stage: Stage) -> None:
    stage.enqueue_bulk(300)
    stage.pass_time(1)
    stage.enqueue_bulk(200)
    stage.pass_time(4.5)
    assert arrivals(stage).created[:2] == (200, 500)


def test_classes_are_told_apart(stage: Stage) -> None:
    stage.define("d")
    stage.define("idle")
    stage.enqueue_bulk(30)
    stage.enqueue_bulk(1, class_="d")
    stage.enqueue_bulk(30)
    assert arrivals(stage).created[0] == 60
    assert arrivals(stage, "d").created[0] == 1
    assert arrivals(stage, "idle").created[0] == 0


def test_a_job_for_later_arrives_when_it_is_due(stage: Stage) -> None:
    job = enqueue_in(stage, 30)
    assert arrivals(stage).created == (0, 0, 0, 0)
    stage.pass_time(37)
    found = arrivals(stage)
    assert found.created == (0, 0, 0, 1), "it was created within a minute, and is due"
    assert found.again == (0, 1, 1, 0), "and became due within 10 s, being older than that"
    assert stage.worker().claim_one().id == job
    found = arrivals(stage)
    assert (found.created, found.again) == ((0, 0, 0, 1), (0, 1, 1, 0))
    stage.pass_time(100)
    found = arrivals(stage)
    assert (found.created, found.again) == ((0, 0, 0, 0), (0, 0, 0, 0))


def test_a_retry_arrives_again(stage: Stage) -> None:
    stage.enqueue()
    stage.pass_time(100)
    worker = stage.worker()
    job = worker.claim_one()
    queue.fail(stage.conn, job.id, job.token, "boom", retry_after=timedelta(seconds=30))
    assert arrivals(stage).again == (0, 0, 0, 0)
    stage.pass_time(32)
    assert arrivals(stage).again == (1, 1, 1, 1)
    worker.claim_one()
    assert arrivals(stage).again == (1, 1, 1, 1)
    assert arrivals(stage).created == (0, 0, 0, 0)


def test_a_redrive_arrives_again(stage: Stage) -> None:
    job = stage.enqueue()
    worker = stage.worker()
    claimed = worker.claim_one()
    queue.fail(stage.conn, job, claimed.token, "boom", outcome="dead")
    stage.pass_time(1000)
    queue.redrive(stage.admin, [job])
    assert arrivals(stage).again == (1, 1, 1, 1)


def test_what_is_given_back_or_runs_does_not_arrive_again(stage: Stage) -> None:
    stage.enqueue_bulk(2)
    stage.pass_time(100)
    worker = stage.worker()
    job, _ = worker.claim(2)
    queue.release(stage.conn, job.id, job.token, reason="drain")
    assert arrivals(stage).again == (0, 0, 0, 0)


def test_a_long_transactions_jobs_count_from_their_enqueue_once_they_exist(stage: Stage) -> None:
    conn = stage.connect(autocommit=False)
    queue.enqueue_many(conn, [queue.NewJob("c", "work", {}) for _ in range(50)])
    stage.enqueue()
    assert arrivals(stage).created == (1, 1, 1, 1)
    conn.commit()
    assert arrivals(stage).created == (51, 51, 51, 51)
    stage.pass_time(15)
    assert arrivals(stage).created == (0, 0, 51, 51)


def test_ids_that_were_never_used_are_not_jobs(own: Stage) -> None:
    own.enqueue_bulk(3)
    own.pass_time(30)
    own.admin.execute("SELECT setval('jobqueue.job_id', 500000)")
    own.enqueue_bulk(2)
    own.admin.execute("SELECT setval('jobqueue.job_id', 3000000)")
    found = arrivals(own)
    assert found.created[:3] == (2, 2, 2) or found.estimated
    own.admin.execute("SELECT setval('jobqueue.job_id', 3000000)")
    own.enqueue_bulk(10)
    assert 0 <= arrivals(own).created[0] <= 12


def test_jobs_in_the_last_ids_of_one_range_and_the_first_of_the_next(own: Stage) -> None:
    own.admin.execute("SELECT setval('jobqueue.job_id', 999995)")
    own.enqueue_bulk(20)
    assert arrivals(own).created == (20, 20, 20, 20)
    own.admin.execute("SELECT setval('jobqueue.job_id', 90000000)")  # beyond every range: in the default partitions
    own.enqueue_bulk(4)
    own.pass_time(20)
    own.enqueue_bulk(4)
    assert arrivals(own).created[:2] == (4, 4)


def test_many_are_estimated_and_the_rare_class_is_not_lost(own: Stage) -> None:
    """200,000 in a minute from three classes at 100 : 10 : 1: within four standard errors of 400 ids a span."""
    for name in ("often", "rare"):
        own.define(name)
    created_ago(own, "c", 200_000, 60)
    own.admin.execute(
        "UPDATE jobqueue.body b SET class_id = (SELECT c.id FROM jobqueue.class c WHERE c.name = CASE"
        " WHEN b.id % 111 = 0 THEN 'rare' ELSE 'often' END) WHERE b.id % 111 < 11"
    )
    true = {"c": 100 / 111, "often": 10 / 111, "rare": 1 / 111}
    spans = (5, 5, 10, 40)  # between one moment and the next
    for name, share in true.items():
        found = arrivals(own, name)
        assert found.estimated
        for n, count in enumerate(found.created, start=1):
            seconds = sum(spans[:n])
            expected = share * 200_000 * (seconds - 0.5) / 59.5
            error = math.hypot(*spans[:n]) / seconds * math.sqrt((1 - share) / share / 400)
            assert abs(count - expected) < (0.05 + 4 * error) * expected, f"{name} in {seconds} s"
        assert found.created[3] > 0
        assert list(found.created) == sorted(found.created)


def test_an_estimate_knows_gaps_and_jobs_for_later(own: Stage) -> None:
    created_ago(own, "c", 60_000, 60, every=3, ended=False)
    own.admin.execute("UPDATE jobqueue.ready SET run_after = run_after + interval '1 day' WHERE id % 2 = 0")
    found = arrivals(own)
    assert found.estimated
    for count, seconds in zip(found.created, (5, 10, 20, 60), strict=True):
        assert count == pytest.approx(30_000 * (seconds - 0.5) / 59.5, rel=0.3)


def test_a_batch_of_a_hundred_thousand_is_seen_at_its_time(own: Stage) -> None:
    created_ago(own, "c", 3_000, 60)
    own.admin.execute("SELECT count(*) FROM jobqueue.body")
    own.pass_time(7)
    own.fill(100_000)
    own.pass_time(7)
    created_ago(own, "c", 100, 4)
    found = arrivals(own)
    assert found.created[0] == 100
    assert found.created[1] - found.created[0] == pytest.approx(100_000, rel=0.05)


def test_a_clock_that_jumped_invents_nothing(own: Stage) -> None:
    own.enqueue_bulk(50)
    own.admin.execute("UPDATE jobqueue.body SET created_at = created_at + interval '1 hour'")
    own.admin.execute("UPDATE jobqueue.ready SET run_after = run_after + interval '1 hour'")
    own.enqueue_bulk(5)
    found = arrivals(own)
    assert min(found.created) >= 0
    assert max(found.created) <= 5, "what is dated in the future has not arrived"
    own.pass_time(-30)
    assert min(arrivals(own).created) >= 0
