"""Invariant 8: units in flight on a downstream never exceed its limit, whatever workers exist."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import psycopg
import pytest

from jobqueue import queue
from jobqueue.errors import CapacityConflict, InvalidInput, WorkerRefused

if TYPE_CHECKING:
    from integration.queue.stage import Stage, Worker

IN_FLIGHT = (
    "SELECT COALESCE(sum(units), 0)::int FROM jobqueue.lease l JOIN jobqueue.downstream d ON d.id = l.downstream_id"
    " WHERE d.name = 'api'"
)


def _limited(stage: Stage, limit: int, class_: str = "c", **settings: int) -> None:
    queue.set_downstream(stage.admin, None, "api", limit)
    stage.define(class_, downstream="api", **settings)


def test_a_claim_takes_the_difference(stage: Stage) -> None:
    _limited(stage, 5)
    stage.enqueue_bulk(20)
    first, second = stage.worker(), stage.worker()
    batch = first.claim(3)
    assert len(batch) == 3
    assert len(second.claim(10)) == 2
    assert second.claim(10) == first.claim(10) == []
    queue.complete(stage.conn, batch[0].id, batch[0].token)
    assert len(second.claim(10)) == 1


def test_jobs_of_several_units_and_classes_share_the_limit(stage: Stage) -> None:
    _limited(stage, 10, "big", units_per_job=4)
    _limited(stage, 10, "small", units_per_job=3)
    stage.enqueue_bulk(5, "big")
    stage.enqueue_bulk(5, "small")
    big, small = stage.worker("big"), stage.worker("small")
    assert len(big.claim()) == 2
    assert len(small.claim()) == 0
    assert stage.one(IN_FLIGHT) == 8


def test_a_second_claim_waits_for_the_first_to_commit(stage: Stage) -> None:
    _limited(stage, 3)
    stage.enqueue_bulk(10)
    first = stage.worker(conn=stage.connect(autocommit=False))
    second = stage.worker(conn=stage.connect())
    assert len(first.claim()) == 3
    answer = stage.background(second.claim)
    stage.wait_until_blocked()
    first.conn.commit()
    assert answer.result(20) == []


def test_what_a_rolled_back_claim_took_is_free_again(stage: Stage) -> None:
    _limited(stage, 3)
    stage.enqueue_bulk(10)
    first = stage.worker(conn=stage.connect(autocommit=False))
    assert len(first.claim()) == 3
    first.conn.rollback()
    assert len(stage.worker().claim()) == 3


def test_expired_leases_count_until_swept(stage: Stage) -> None:
    _limited(stage, 2)
    stage.enqueue_bulk(4)
    worker = stage.worker()
    assert len(worker.claim()) == 2
    stage.pass_time(3600)
    stage.admin.execute("UPDATE jobqueue.worker SET seen_at = clock_timestamp()")
    assert worker.claim() == []
    stage.sweep()
    assert sum(len(worker.claim()) for _ in range(4)) == 2
    assert stage.one(IN_FLIGHT) == 2


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_snapshot_taken_before_the_lock_is_refused(stage: Stage, level: str) -> None:
    _limited(stage, 2)
    stage.enqueue()
    worker = stage.worker(conn=stage.connect(autocommit=False))
    worker.conn.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
    with pytest.raises(InvalidInput, match=f"READ COMMITTED, not {level}"):
        worker.claim()
    worker.conn.rollback()
    assert len(worker.claim()) == 1


def test_acknowledgements_never_touch_the_downstreams_row(stage: Stage) -> None:
    _limited(stage, 4)
    stage.enqueue_bulk(4)
    worker = stage.worker()
    batch = worker.claim()
    holder = stage.connect(autocommit=False, dsn=stage.database.direct)
    holder.execute("SELECT FROM jobqueue.downstream FOR UPDATE")
    conn = stage.connect(autocommit=False)
    conn.execute("SET LOCAL lock_timeout = '3s'")
    ids, tokens = [c.id for c in batch], [c.token for c in batch]
    assert queue.extend(conn, worker.id, ids, tokens)[0].result == "extended"
    assert queue.complete(conn, ids[0], tokens[0]) == "done"
    assert queue.fail(conn, ids[1], tokens[1], "boom").result == "retry"
    assert queue.release(conn, ids[2], tokens[2], reason="drain") == "released"
    conn.commit()
    holder.rollback()


def test_a_lower_limit_takes_effect_as_jobs_end(stage: Stage) -> None:
    _limited(stage, 4)
    stage.enqueue_bulk(10)
    worker = stage.worker()
    batch = worker.claim()
    queue.set_downstream(stage.admin, None, "api", 2)
    for claimed in batch[:2]:
        queue.complete(stage.conn, claimed.id, claimed.token)
        assert worker.claim() == []
    queue.complete(stage.conn, batch[2].id, batch[2].token)
    assert len(worker.claim()) == 1
    queue.set_downstream(stage.admin, None, "api", 0)
    assert worker.claim() == []


def test_never_above_the_limit_under_many_claimers(own: Stage) -> None:
    """Each claim is watched at its end, under the lock that makes claims follow one another."""
    limit = 11
    _limited(own, limit, "two", units_per_job=2)
    _limited(own, limit, "three", units_per_job=3)
    own.admin.execute(
        "CREATE TABLE public.seen (units int); GRANT USAGE ON SCHEMA public TO jobqueue_owner;"
        "CREATE FUNCTION public.watch() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN"
        "  INSERT INTO public.seen SELECT sum(units) FROM jobqueue.lease; RETURN NULL; END $$;"
        "CREATE TRIGGER watch AFTER INSERT ON jobqueue.lease FOR EACH STATEMENT EXECUTE FUNCTION public.watch()"
    )
    for class_ in ("two", "three"):
        own.enqueue_bulk(150, class_)
    workers = [own.worker(("two", "three")[i % 2], conn=own.connect()) for i in range(8)]

    def drain(worker: Worker, seed: int) -> int:
        chance, done, idle = random.Random(seed), 0, 0  # noqa: S311 - a schedule, no secret
        held: list[queue.Claimed] = []
        while idle < 200:
            held += worker.claim(chance.randint(1, 4))
            if not held:
                idle += 1
                continue
            idle = 0
            chance.shuffle(held)
            ending = held[: chance.randint(1, len(held))]
            held = held[len(ending) :]
            queue.complete_many(worker.conn, [c.id for c in ending], [c.token for c in ending])
            done += len(ending)
        return done

    running = [own.background(drain, worker, seed) for seed, worker in enumerate(workers)]
    assert sum(each.result(60) for each in running) == 300
    peak = own.one("SELECT max(units) FROM public.seen")
    assert limit - 1 <= peak <= limit


# --- units that a worker holds by itself ---


def test_workers_are_admitted_under_the_limit_and_wait_beyond_it(stage: Stage) -> None:
    _limited(stage, 10, units_per_pod=3, units_per_job=1)
    stage.enqueue_bulk(20)
    workers = [stage.worker() for _ in range(4)]
    assert [w.admitted for w in workers] == [True, True, True, False]
    with pytest.raises(WorkerRefused, match="not admitted"):
        workers[3].claim()
    queue.forget_worker(stage.conn, workers[0].id)
    again = queue.register_worker(stage.conn, "w4", "c", [], slots=1)
    assert (again.worker, again.admitted) == (workers[3].id, True)


def test_a_worker_that_cannot_fit_does_not_starve_the_others(stage: Stage) -> None:
    _limited(stage, 10, units_per_pod=3, units_per_job=1)
    stage.enqueue_bulk(20)
    workers = [stage.worker() for _ in range(5)]
    assert not workers[4].admitted
    assert len(workers[0].claim()) == 1
    assert stage.one("SELECT sum(units) FROM jobqueue.worker WHERE state = 'active'") == 9


def test_workers_alone_never_use_up_what_a_job_needs(stage: Stage) -> None:
    _limited(stage, 9, units_per_pod=3, units_per_job=2)
    stage.enqueue_bulk(20)
    workers = [stage.worker() for _ in range(3)]
    assert [w.admitted for w in workers] == [True, True, False]
    assert len(workers[0].claim()) == 1


def test_jobs_in_flight_count_against_admission_and_the_waiting_worker_comes_next(stage: Stage) -> None:
    _limited(stage, 10, units_per_pod=4, units_per_job=1)
    stage.enqueue_bulk(20)
    first = stage.worker()
    batch = first.claim(6)
    assert len(batch) == 6
    second = stage.worker()
    assert not second.admitted
    for claimed in batch[:4]:
        queue.complete(stage.conn, claimed.id, claimed.token)
        assert first.claim() == []  # what becomes free is kept for the worker that waits
    assert queue.register_worker(stage.conn, "w2", "c", [], slots=1).admitted
    assert first.claim() == []
    queue.complete(stage.conn, batch[4].id, batch[4].token)
    assert len(first.claim()) == 1


def test_retired_workers_keep_their_units_and_forgotten_ones_do_not(stage: Stage) -> None:
    _limited(stage, 8, units_per_pod=3, units_per_job=1)
    first, second = stage.worker(), stage.worker()
    assert first.admitted
    assert second.admitted
    queue.retire_worker(stage.admin, None, [first.id])
    assert not stage.worker().admitted
    queue.forget_worker(stage.conn, first.id)
    assert queue.register_worker(stage.conn, "w3", "c", [], slots=1).admitted


def test_a_worker_larger_than_the_limit_is_refused(stage: Stage) -> None:
    _limited(stage, 9, units_per_pod=5)
    queue.set_downstream(stage.admin, None, "api", 4)
    with pytest.raises(CapacityConflict, match="takes 5 units, the limit is 4"):
        stage.worker()
    with pytest.raises(InvalidInput, match="units_per_job"):
        stage.define("c", units_per_job=4)


def test_concurrent_registrations_are_admitted_one_by_one(stage: Stage) -> None:
    _limited(stage, 7, units_per_pod=3)
    first = stage.connect(autocommit=False)
    assert queue.register_worker(first, "a", "c", [], slots=1).admitted
    conns = [stage.connect(), stage.connect()]
    answers = [
        stage.background(queue.register_worker, conn, name, "c", [], slots=1)
        for conn, name in zip(conns, "bd", strict=True)
    ]
    stage.wait_until_blocked(2)
    first.commit()
    assert sorted(answer.result(20).admitted for answer in answers) == [False, True]


def test_the_snapshot_says_what_is_in_use(stage: Stage) -> None:
    _limited(stage, 10, units_per_pod=2, units_per_job=3)
    stage.enqueue()
    stage.worker().claim()
    [facts] = queue.snapshot(stage.conn)["downstreams"]
    assert (facts["downstream"], facts["limit"], facts["in_use"]) == ("api", 10, 5)


def test_an_uncapped_claim_may_run_in_any_isolation(stage: Stage) -> None:
    stage.enqueue()
    worker = stage.worker(conn=stage.connect(autocommit=False))
    worker.conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    assert len(worker.claim()) == 1
    worker.conn.commit()


def test_backends_ended_in_a_capped_claim_leave_nothing_behind(direct: Stage) -> None:
    _limited(direct, 3)
    direct.enqueue_bulk(5)
    worker = direct.worker(conn=direct.connect(autocommit=False))
    assert len(worker.claim()) == 3
    direct.admin.execute("SELECT pg_terminate_backend(%s)", [worker.conn.info.backend_pid])
    with pytest.raises(psycopg.OperationalError):
        worker.conn.execute("SELECT 1")
    assert direct.one(IN_FLIGHT) == 0
    assert len(direct.worker().claim()) == 3


def test_what_is_in_flight_follows_its_class_to_another_downstream(stage: Stage) -> None:
    queue.set_downstream(stage.admin, None, "api", 4)
    queue.set_downstream(stage.admin, None, "other", 10)
    stage.enqueue_bulk(20)
    worker = stage.worker()
    held = worker.claim(3)
    stage.define("c", downstream="api")
    assert stage.one(IN_FLIGHT) == 3
    assert len(worker.claim(10)) == 1
    stage.define("c", downstream="other", units_per_job=2)
    assert stage.one(IN_FLIGHT) == 0
    assert len(worker.claim(10)) == 1  # 4 jobs of 2 units each are charged to it already
    for job in held:
        queue.complete(stage.conn, job.id, job.token)
    assert len(worker.claim(10)) == 3


def test_what_workers_take_for_themselves_follows_too(stage: Stage) -> None:
    queue.set_downstream(stage.admin, None, "api", 5)
    stage.enqueue_bulk(20)
    worker = stage.worker()
    stage.define("c", downstream="api", units_per_pod=3)
    assert len(worker.claim(10)) == 2
