"""Invariant 13: age and depth count every due job that nobody holds: unsupported ones and expired leases too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobqueue import queue

if TYPE_CHECKING:
    from integration.queue.stage import Stage


def test_an_empty_class(stage: Stage) -> None:
    facts = stage.snapshot()
    assert (facts["ready"], facts["scheduled"], facts["in_flight"], facts["expired"], facts["dead"]) == (0, 0, 0, 0, 0)
    assert (facts["oldest_age"], facts["ages"], facts["estimated"]) == (0, [], False)
    assert facts["blocked"] == {"unsupported": 0, "key": 0, "tenant": 0}


def test_due_scheduled_running_and_dead_are_told_apart(stage: Stage) -> None:
    stage.enqueue_bulk(5)
    later = stage.one("SELECT clock_timestamp() + interval '1 hour'")
    stage.enqueue(run_after=later)
    worker = stage.worker()
    batch = worker.claim(3)
    queue.fail(stage.conn, batch[0].id, batch[0].token, "boom", outcome="dead")
    queue.complete(stage.conn, batch[1].id, batch[1].token)
    facts = stage.snapshot()
    assert (facts["ready"], facts["scheduled"], facts["in_flight"], facts["dead"]) == (2, 1, 1, 1)


def test_unsupported_kinds_count_and_are_said(stage: Stage) -> None:
    stage.enqueue(kind="unknown")
    stage.pass_time(100)
    stage.enqueue()
    stage.enqueue(version=2)
    stage.worker()
    facts = stage.snapshot()
    assert facts["ready"] == 3
    assert facts["blocked"]["unsupported"] == 2
    assert 100 <= facts["oldest_age"] < 110


def test_what_the_last_worker_did_not_understand_stays_unsupported_while_none_is_there(stage: Stage) -> None:
    stage.enqueue(kind="unknown")
    stage.enqueue()
    assert stage.snapshot()["blocked"]["unsupported"] == 0, "nobody has had the chance"
    old = stage.worker(kinds=[("unknown", 1)], name="old")
    queue.forget_worker(stage.conn, old.id)
    last = stage.worker(name="last")
    assert stage.snapshot()["blocked"]["unsupported"] == 1
    queue.forget_worker(stage.conn, last.id)
    assert stage.snapshot()["blocked"]["unsupported"] == 1
    new = stage.worker(kinds=[("work", 1), ("unknown", 1)], name="new")
    assert stage.snapshot()["blocked"]["unsupported"] == 0
    queue.forget_worker(stage.conn, new.id)
    stage.worker(kinds=[], name="imports its app")
    assert stage.snapshot()["blocked"]["unsupported"] == 0


def test_expired_leases_count_from_their_end_and_stop_when_swept(stage: Stage) -> None:
    stage.enqueue_bulk(3)
    worker = stage.worker()
    worker.claim(2)
    stage.pass_time(90)
    facts = stage.snapshot()
    assert (facts["ready"], facts["expired"], facts["in_flight"]) == (3, 2, 0)
    assert 90 <= facts["oldest_age"] < 95
    stage.admin.execute("DELETE FROM jobqueue.ready")
    assert 30 <= stage.snapshot()["oldest_age"] < 35
    stage.sweep()
    facts = stage.snapshot()
    assert (facts["ready"], facts["expired"], facts["lease_expirations"]) == (2, 0, 2)


def test_what_runs_has_no_age(stage: Stage) -> None:
    stage.enqueue()
    worker = stage.worker()
    claimed = worker.claim_one()
    stage.pass_time(50)
    queue.extend(stage.conn, worker.id, [claimed.id], [claimed.token])
    facts = stage.snapshot()
    assert facts["oldest_age"] == 0
    assert 50 <= facts["longest_running"] < 55


def test_parked_paused_and_full_tenants_count(stage: Stage) -> None:
    stage.define("c", fair_tenants=True, tenant_limit=1)
    for _ in range(3):
        stage.enqueue(concurrency_key="k")
    for _ in range(2):
        stage.enqueue(tenant="t")
    worker = stage.worker()
    assert len(worker.claim()) == 2
    queue.set_paused(stage.admin, None, "c", paused=True)
    facts = stage.snapshot()
    assert facts["paused"] is True
    assert facts["ready"] == 3
    assert facts["blocked"] == {"unsupported": 0, "key": 2, "tenant": 1}


def test_suspects_count(stage: Stage) -> None:
    stage.enqueue()
    worker = stage.worker()
    worker.claim_one()
    queue.forget_worker(stage.conn, worker.id)
    assert stage.snapshot()["ready"] == 1


def test_every_priority_kind_tenant_and_key_counts_for_the_oldest(stage: Stage) -> None:
    stage.define("c", fair_tenants=True)
    for age, options in (
        (10, {"priority": -100}),
        (20, {"priority": 100}),
        (30, {"kind": "other"}),
        (40, {"tenant": "t"}),
        (50, {"version": 9}),
    ):
        stage.enqueue(**options)
        stage.admin.execute(
            "UPDATE jobqueue.ready SET run_after = clock_timestamp() - make_interval(secs => %s)"
            " WHERE run_after > clock_timestamp() - interval '5 seconds'",
            [age],
        )
        assert age <= stage.snapshot()["oldest_age"] < age + 5


def test_the_oldest_is_exact_beyond_the_sample(own: Stage) -> None:
    """Above 50,000 rows the counts are estimates, marked so; the oldest is none."""
    own.enqueue(kind="old")
    own.pass_time(5000)
    own.fill(120_000)
    own.worker()
    facts = own.snapshot()
    assert facts["estimated"] is True
    assert 100_000 < facts["ready"] < 140_000
    assert 5000 <= facts["oldest_age"] < 5060
    assert len(facts["ages"]) == 8


def test_ages_are_quantiles_oldest_first(stage: Stage) -> None:
    for n in range(80):
        stage.enqueue(run_after=stage.one("SELECT clock_timestamp() - make_interval(secs => %s)", [n * 10]))
    ages = stage.snapshot()["ages"]
    assert ages == sorted(ages, reverse=True)
    assert 790 <= ages[0] < 800
    assert 380 <= ages[4] < 420


def test_what_is_uncommitted_does_not_count(stage: Stage) -> None:
    conn = stage.connect(autocommit=False)
    queue.enqueue(conn, "c", "work", {})
    assert stage.snapshot()["ready"] == 0
    conn.rollback()


def test_workers_and_the_oldest_transaction_are_named(direct: Stage) -> None:
    worker = direct.worker(slots=7)
    direct.enqueue()
    worker.claim_one()
    holder = direct.connect(autocommit=False)
    holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    holder.execute("SELECT 1")
    facts = queue.snapshot(direct.conn)
    [said] = facts["workers"]
    assert (said["id"], said["class"], said["state"], said["slots"], said["in_flight"]) == (
        worker.id,
        "c",
        "active",
        7,
        1,
    )
    assert facts["database"]["oldest_transaction_pid"] == holder.info.backend_pid
    assert facts["database"]["oldest_transaction_age"] >= 0
