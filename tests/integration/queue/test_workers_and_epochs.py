"""Workers come, are fenced and go; an operator's word counts only while it leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from jobqueue import queue
from jobqueue.errors import InvalidInput, StaleEpoch, UnknownClass, WorkerRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.queue.stage import Connection, Stage


def test_a_name_is_one_worker(stage: Stage) -> None:
    first = queue.register_worker(stage.conn, "pod-1/0", "c", [("a", 1)], slots=4)
    again = queue.register_worker(stage.conn, "pod-1/0", "c", [("b", 2)], slots=8)
    assert again.worker == first.worker
    assert stage.one("SELECT kinds FROM jobqueue.workers") == ["b@2"]
    assert stage.one("SELECT slots FROM jobqueue.workers") == 8
    stage.define("d")
    with pytest.raises(WorkerRefused, match="registered for another class"):
        queue.register_worker(stage.conn, "pod-1/0", "d", [], slots=1)
    queue.forget_worker(stage.conn, first.worker)
    assert queue.register_worker(stage.conn, "pod-1/0", "c", [], slots=1).worker != first.worker


def test_registration_answers_with_the_classs_settings(stage: Stage) -> None:
    stage.define("c", lease_seconds=45, timeout_seconds=20, concurrency=7, max_attempts=3)
    got = queue.register_worker(stage.conn, "w", "c", [], slots=1)
    assert got.lease.total_seconds() == 45
    assert (got.settings["timeout_seconds"], got.settings["concurrency"], got.settings["max_attempts"]) == (20, 7, 3)
    assert (got.settings["state"], got.settings["paused"], got.settings["downstream"]) == ("active", False, None)


@pytest.mark.parametrize(("name", "slots"), [("", 1), ("x" * 254, 1), ("w", 0), ("w", 10_001)])
def test_bad_registrations_are_refused(stage: Stage, name: str, slots: int) -> None:
    with pytest.raises(InvalidInput):
        queue.register_worker(stage.conn, name, "c", [], slots=slots)


def test_the_lease_is_the_classs_unless_given(stage: Stage) -> None:
    stage.define("c", lease_seconds=45)
    stage.enqueue_bulk(2)
    worker = stage.worker()
    left = "SELECT extract(epoch FROM %s - clock_timestamp())::float8"
    assert 43 < stage.one(left, [worker.claim_one().leased_until]) <= 45
    short = worker.claim_one(lease=stage.one("SELECT interval '5 seconds'"))
    assert 3 < stage.one(left, [short.leased_until]) <= 5


def test_only_a_registered_worker_of_the_class_claims(stage: Stage) -> None:
    stage.enqueue()
    stage.define("d")
    other = stage.worker("d")
    for worker, why in ((4711, "not registered"), (other.id, "registered for another class")):
        with pytest.raises(WorkerRefused, match=why):
            queue.claim(stage.conn, "c", worker, 1, max_jobs=1)
    gone = stage.worker()
    queue.forget_worker(stage.conn, gone.id)
    with pytest.raises(WorkerRefused, match="gone"):
        gone.claim()
    with pytest.raises(WorkerRefused, match="not registered"):
        queue.understand(stage.conn, gone.id, [])


def test_a_retired_worker_claims_nothing_and_finishes_what_it_holds(stage: Stage) -> None:
    jobs = [stage.enqueue() for _ in range(3)]
    worker = stage.worker()
    batch = worker.claim(2)
    assert queue.retire_worker(stage.admin, None, [worker.id, 4711]) == {worker.id: 2}
    with pytest.raises(WorkerRefused, match="retired"):
        worker.claim()
    assert queue.heartbeat(stage.conn, worker.id).state == "retired"
    assert queue.complete(stage.conn, jobs[0], batch[0].token) == "done"
    [renewed] = queue.extend(stage.conn, worker.id, [jobs[1]], [batch[1].token])
    assert renewed.result == "extended"
    assert queue.retire_worker(stage.admin, None, [worker.id]) == {worker.id: 1}
    assert queue.unretire_worker(stage.admin, None, [worker.id, 4711]) == [worker.id]
    assert [c.id for c in worker.claim()] == [jobs[2]]


def test_retiring_waits_for_a_claim_under_way_so_that_its_count_can_only_fall(stage: Stage) -> None:
    stage.enqueue()
    worker = stage.worker(conn=stage.connect(autocommit=False))
    worker.claim_one()
    operating = stage.connect(dsn=stage.database.direct)
    answer = stage.background(queue.retire_worker, operating, None, [worker.id])
    stage.wait_until_blocked()
    worker.conn.commit()
    assert answer.result(20) == {worker.id: 1}


def test_a_worker_that_waits_simply_goes_when_retired(stage: Stage) -> None:
    queue.set_downstream(stage.admin, None, "api", 4)
    stage.define("c", downstream="api", units_per_pod=3, units_per_job=1)
    stage.worker()
    waiting = stage.worker()
    assert not waiting.admitted
    assert queue.retire_worker(stage.admin, None, [waiting.id]) == {}
    assert queue.heartbeat(stage.conn, waiting.id).state == "unknown"


def test_a_heartbeat_of_a_stranger(stage: Stage) -> None:
    assert queue.heartbeat(stage.conn, 4711) == ("unknown", False, [])


def test_silent_workers_are_gone_when_they_hold_nothing(stage: Stage) -> None:
    stage.enqueue()
    holding, silent, loud = stage.worker(), stage.worker(), stage.worker()
    holding.claim_one(lease=stage.one("SELECT interval '1 day'"))
    queue.sleeping(stage.conn, silent.id, "c", asleep=True)
    stage.pass_time(601)
    queue.heartbeat(stage.conn, loud.id)
    stage.sweep()
    states = [queue.heartbeat(stage.conn, w.id).state for w in (holding, silent, loud)]
    assert states == ["active", "unknown", "active"]
    assert stage.snapshot()["sleepers"] == 0


# --- leadership ---

ORDERS: dict[str, Callable[[Connection, int | None], Any]] = {
    "set_class": lambda c, e: queue.set_class(c, e, "c", {"concurrency": 3}),
    "set_downstream": lambda c, e: queue.set_downstream(c, e, "api", 3),
    "set_paused": lambda c, e: queue.set_paused(c, e, "c", paused=True),
    "remember": lambda c, e: queue.remember(c, e, "c", {"prior": 1.5}),
    "retire_worker": lambda c, e: queue.retire_worker(c, e, []),
    "unretire_worker": lambda c, e: queue.unretire_worker(c, e, []),
}


@pytest.mark.parametrize("order", ORDERS)
def test_a_former_leader_is_refused(direct: Stage, order: str) -> None:
    old = queue.lead(direct.admin, "operator-a")
    ORDERS[order](direct.admin, old)
    new = queue.lead(direct.admin, "operator-b")
    assert new > old
    before = direct.one("SELECT to_jsonb(c) FROM jobqueue.class c")
    with pytest.raises(StaleEpoch, match=f"epoch: {old} is over, 'operator-b' leads this database with epoch {new}"):
        ORDERS[order](direct.admin, old)
    with pytest.raises(StaleEpoch):
        ORDERS[order](direct.admin, new + 1)
    assert direct.one("SELECT to_jsonb(c) FROM jobqueue.class c") == before
    ORDERS[order](direct.admin, new)
    ORDERS[order](direct.admin, None)


def test_a_new_leader_waits_for_the_old_ones_order_and_none_follows(direct: Stage) -> None:
    old = queue.lead(direct.admin, "operator-a")
    acting, taking = direct.connect(autocommit=False), direct.connect()
    queue.set_paused(acting, old, "c", paused=True)
    answer = direct.background(queue.lead, taking, "operator-b")
    direct.wait_until_blocked()
    acting.commit()
    assert answer.result(20) == old + 1
    with pytest.raises(StaleEpoch):
        queue.set_paused(acting, old, "c", paused=False)
    acting.rollback()
    assert direct.snapshot()["paused"] is True


def test_every_leader_gets_an_epoch_of_its_own(direct: Stage) -> None:
    conns = [direct.connect() for _ in range(5)]
    epochs = [each.result(20) for each in [direct.background(queue.lead, c, "x") for c in conns]]
    assert len(set(epochs)) == 5


# --- what outlives an operator ---


def test_memory_is_kept_for_the_next_leader(stage: Stage) -> None:
    assert stage.snapshot()["memory"] is None
    memory = {"prior": 0.25, "peaks": [1, 2.5], "name": "ü"}
    queue.remember(stage.admin, queue.lead(stage.admin, "operator-a"), "c", memory)
    queue.lead(stage.admin, "operator-b")
    assert stage.snapshot()["memory"] == memory
    queue.remember(stage.admin, None, "c", {})
    assert stage.snapshot()["memory"] == {}
    queue.remember(stage.admin, None, "c", None)
    assert stage.snapshot()["memory"] is None


def test_memory_of_a_former_leader_is_refused_and_changes_nothing(direct: Stage) -> None:
    old = queue.lead(direct.admin, "operator-a")
    queue.remember(direct.admin, queue.lead(direct.admin, "operator-b"), "c", {"by": "b"})
    with pytest.raises(StaleEpoch):
        queue.remember(direct.admin, old, "c", {"by": "a"})
    with pytest.raises(StaleEpoch):
        queue.remember(direct.admin, old, "c", None)
    assert direct.snapshot()["memory"] == {"by": "b"}


def test_memory_that_did_not_change_is_not_written_again(direct: Stage) -> None:
    queue.remember(direct.admin, None, "c", {"n": 1})
    row = "SELECT xmin::text FROM jobqueue.memory"
    before = direct.one(row)
    queue.remember(direct.admin, None, "c", {"n": 1})
    assert direct.one(row) == before
    queue.remember(direct.admin, None, "c", {"n": 2})
    assert direct.one(row) != before


def test_memory_is_bounded_and_an_object(stage: Stage) -> None:
    with pytest.raises(InvalidInput, match="memory: 16393 bytes, at most 16384"):
        queue.remember(stage.conn, None, "c", {"n": "x" * 16385})
    with pytest.raises(UnknownClass, match="no class 'd'"):
        queue.remember(stage.conn, None, "d", {})
    for value, why in (("'[1]'", "must be an object or null, not array"), ("'null'", "not null")):
        with pytest.raises(psycopg.Error, match=why):
            stage.admin.execute(f"SELECT jobqueue.remember(NULL, 'c', {value})")
    with pytest.raises(psycopg.Error, match="memory: 16394 bytes, at most 16384"):
        stage.admin.execute("SELECT jobqueue.remember(NULL, 'c', jsonb_build_object('n', repeat('x', 16385)))")


# --- how long a start takes ---


def test_admission_and_readiness_are_dated(stage: Stage) -> None:
    queue.set_downstream(stage.admin, None, "api", 4)
    stage.define("c", downstream="api", units_per_pod=3, units_per_job=1)
    first = stage.worker()
    second = stage.worker()

    def dates(worker: int) -> tuple[float | None, float | None]:
        [entry] = [w for w in queue.snapshot(stage.conn)["workers"] if w["id"] == worker]
        return entry["admitted_at"], entry["ready_at"]

    assert dates(second.id) == (None, None)
    admitted, ready = dates(first.id)
    assert admitted is not None
    assert ready is None
    queue.understand(stage.conn, first.id, [("work", 1)])
    once = dates(first.id)
    assert once[0] == admitted
    assert once[1] is not None
    assert once[1] >= admitted
    queue.understand(stage.conn, first.id, [("work", 2)])
    queue.register_worker(stage.conn, "w1", "c", [], slots=1)
    assert dates(first.id) == once
    queue.forget_worker(stage.conn, first.id)
    queue.register_worker(stage.conn, "w2", "c", [("work", 1)], slots=10)
    later, _ = dates(second.id)
    assert later is not None
    assert later > once[1]


def test_the_seconds_of_work_that_a_worker_holds(stage: Stage) -> None:
    stage.enqueue_bulk(3)
    busy, idle = stage.worker(), stage.worker()
    busy.claim(2)
    stage.pass_time(20)
    busy.claim(1)
    held = {w["id"]: (w["in_flight"], w["elapsed"]) for w in queue.snapshot(stage.conn)["workers"]}
    assert held[busy.id][0] == 3
    assert 40 <= held[busy.id][1] < 43
    assert held[idle.id] == (0, 0)


def test_the_connections_that_ordinary_users_may_open(stage: Stage) -> None:
    reserved = stage.one(
        "SELECT sum(setting::int) FROM pg_settings"
        " WHERE name IN ('superuser_reserved_connections', 'reserved_connections')"
    )
    assert queue.snapshot(stage.conn)["database"]["connections"] == 200 - reserved
