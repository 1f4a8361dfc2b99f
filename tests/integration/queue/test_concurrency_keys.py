"""Jobs of one concurrency key: at most `key_limit` of a class run at once, and those behind cost nobody anything."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from jobqueue import queue

if TYPE_CHECKING:
    from integration.queue.stage import Stage, Worker

PARKED = "SELECT count(*)::int FROM jobqueue.ready WHERE lane < -1"


@pytest.mark.parametrize("limit", [1, 3])
def test_at_most_the_limit_runs(stage: Stage, limit: int) -> None:
    stage.define("c", key_limit=limit)
    jobs = [stage.enqueue(concurrency_key="k") for _ in range(6)]
    worker = stage.worker()
    batch = worker.claim()
    assert [c.id for c in batch] == jobs[:limit]
    assert worker.claim() == []
    stage.enqueue(concurrency_key="k")
    assert worker.claim() == []
    queue.complete(stage.conn, batch[0].id, batch[0].token)
    assert [c.id for c in worker.claim()] == [jobs[limit]]


def test_keys_do_not_hinder_each_other_nor_jobs_without_one(stage: Stage) -> None:
    for key in ("a", "b", "a", None, "b", None):
        stage.enqueue(concurrency_key=key)
    assert len(stage.worker().claim()) == 4


def test_a_key_is_limited_within_its_class(stage: Stage) -> None:
    stage.define("d")
    stage.enqueue(concurrency_key="k")
    stage.enqueue("d", concurrency_key="k")
    assert len(stage.worker().claim()) == 1
    assert len(stage.worker("d").claim()) == 1


@pytest.mark.parametrize("ending", ["complete", "retry", "dead", "release", "snooze", "sweep", "forget"])
def test_every_ending_lets_the_next_one_through(stage: Stage, ending: str) -> None:
    jobs = [stage.enqueue(concurrency_key="k") for _ in range(2)]
    worker = stage.worker()
    claimed = worker.claim(2)[0]
    assert worker.claim() == []
    assert stage.one(PARKED) == 1
    match ending:
        case "complete":
            queue.complete(stage.conn, jobs[0], claimed.token)
        case "retry" | "dead":
            queue.fail(stage.conn, jobs[0], claimed.token, "boom", outcome=ending, retry_after=timedelta(hours=1))
        case "release":
            queue.cancel(stage.conn, jobs[0])
            queue.release(stage.conn, jobs[0], claimed.token, reason="drain")
        case "snooze":
            queue.snooze(stage.conn, jobs[0], claimed.token, stage.one("SELECT clock_timestamp() + interval '1 hour'"))
        case "sweep":
            stage.expire(jobs[0])
            stage.sweep()
        case "forget":
            queue.forget_worker(stage.conn, worker.id)
    assert stage.one(PARKED) == 0
    got = {c.id for turn in range(2) for c in stage.worker(name=f"next-{turn}").claim()}
    assert got in ({jobs[1]}, {jobs[0]} if ending in {"sweep", "forget"} else {jobs[1]})


def test_the_first_parked_one_comes_next(stage: Stage) -> None:
    jobs = [stage.enqueue(concurrency_key="k", priority=p) for p in (0, 0, 50, 0)]
    worker = stage.worker()
    order = []
    for _ in range(4):
        [claimed] = worker.claim()
        order.append(claimed.id)
        queue.complete(stage.conn, claimed.id, claimed.token)
    assert order == [jobs[2], jobs[0], jobs[1], jobs[3]]


def test_a_parked_job_can_be_cancelled_and_listed(stage: Stage) -> None:
    jobs = [stage.enqueue(concurrency_key="k") for _ in range(2)]
    worker = stage.worker()
    claimed = worker.claim()[0]
    assert stage.status(jobs[1]) == "pending"
    assert queue.cancel(stage.conn, jobs[1]) == "cancelled"
    queue.complete(stage.conn, jobs[0], claimed.token)
    assert worker.claim() == []


def test_two_claims_at_once_never_both_see_it_free(stage: Stage) -> None:
    stage.enqueue(concurrency_key="k")
    stage.enqueue(concurrency_key="k")
    first = stage.worker(conn=stage.connect(autocommit=False))
    second = stage.worker(conn=stage.connect(autocommit=False))
    assert len(first.claim(1)) == 1
    assert second.claim(5) == []
    first.conn.commit()
    second.conn.commit()
    assert stage.one("SELECT count(*)::int FROM jobqueue.lease") == 1


def test_a_park_that_raced_the_end_is_undone_by_the_sweep(stage: Stage) -> None:
    jobs = [stage.enqueue(concurrency_key="k") for _ in range(2)]
    worker = stage.worker()
    claimed = worker.claim()[0]
    queue.complete(stage.conn, jobs[0], claimed.token)
    stage.admin.execute("UPDATE jobqueue.ready SET lane = jobqueue.parked_lane(key_hash)")
    assert worker.claim() == []
    assert stage.sweep().unparked == 1
    assert [c.id for c in worker.claim()] == [jobs[1]]


def test_never_above_the_limit_under_many_claimers(own: Stage) -> None:
    own.define("c", key_limit=2)
    own.admin.execute(
        "CREATE TABLE public.seen (running int); GRANT USAGE ON SCHEMA public TO jobqueue_owner;"
        "CREATE FUNCTION public.watch() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN"
        "  INSERT INTO public.seen SELECT count(*) FROM jobqueue.lease GROUP BY key_hash; RETURN NULL; END $$;"
        "CREATE TRIGGER watch AFTER INSERT ON jobqueue.lease FOR EACH STATEMENT EXECUTE FUNCTION public.watch()"
    )
    for n in range(200):
        own.enqueue(concurrency_key=f"k{n % 5}")
    workers = [own.worker(conn=own.connect()) for _ in range(6)]

    def drain(worker: Worker) -> int:
        done = idle = 0
        while idle < 300:
            batch = worker.claim(4)
            idle = 0 if batch else idle + 1
            for claimed in batch:
                queue.complete(worker.conn, claimed.id, claimed.token)
            done += len(batch)
        return done

    running = [own.background(drain, worker) for worker in workers]
    done = sum(each.result(60) for each in running)
    own.sweep()
    done += drain(workers[0])
    assert done == 200
    assert own.one("SELECT max(running) FROM public.seen") == 2


def test_thousands_behind_one_key_do_not_hold_up_the_others(own: Stage) -> None:
    """Twenty thousand wait behind one busy key, and a job without one behind all of them."""
    own.fill(20_000)
    own.admin.execute("UPDATE jobqueue.ready SET key_hash = 7")
    own.pass_time(5)
    free = own.enqueue()
    worker = own.worker()
    got = worker.claim(10)
    for _ in range(10):
        got += worker.claim(10)
    assert free in {c.id for c in got}
    assert len(got) == 2
    assert own.one(PARKED) == 19_999


def test_other_kinds_are_claimed_when_the_oldest_waits_behind_its_key(stage: Stage) -> None:
    for _ in range(3):
        stage.enqueue(kind="work", concurrency_key="x")
    other = stage.enqueue(kind="other")
    worker = stage.worker(kinds=[("work", 1), ("other", 1)])
    worker.claim_one()
    assert worker.claim_one().id == other
