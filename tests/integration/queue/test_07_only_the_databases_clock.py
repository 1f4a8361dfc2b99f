"""Invariant 7: only the database's clock decides what is due, expired or old; every time is a timestamptz."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from jobqueue import queue
from jobqueue.errors import InvalidInput

if TYPE_CHECKING:
    from integration.queue.stage import Stage

ODD_ZONES = ["Pacific/Kiritimati", "Asia/Kathmandu", "America/Adak"]


def test_every_stored_time_is_a_timestamptz(direct: Stage) -> None:
    others = direct.admin.execute(
        "SELECT attrelid::regclass::text, attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid"
        " WHERE relnamespace = 'jobqueue'::regnamespace AND attnum > 0 AND NOT attisdropped"
        "   AND atttypid IN ('timestamp'::regtype, 'date'::regtype, 'time'::regtype, 'timetz'::regtype)"
    ).fetchall()
    assert others == []


def test_no_function_takes_another_kind_of_time_or_reads_the_transactions_start(direct: Stage) -> None:
    rows = direct.admin.execute(
        "SELECT proname, pg_get_function_arguments(oid) || coalesce(pg_get_function_result(oid), ''), prosrc"
        " FROM pg_proc WHERE pronamespace = 'jobqueue'::regnamespace"
    ).fetchall()
    assert len(rows) > 40
    for name, signature, source in rows:
        for wrong in ("timestamp without time zone", " date", "time without"):
            assert wrong not in signature, name
        code = "\n".join(line.partition("--")[0] for line in source.splitlines()).lower()
        for wrong in ("now()", "current_timestamp", "localtimestamp", "transaction_timestamp"):
            assert wrong not in code, name


@pytest.mark.parametrize("zone", ODD_ZONES)
def test_the_sessions_time_zone_changes_nothing(direct: Stage, zone: str) -> None:
    conn = direct.connect()
    conn.execute("SELECT set_config('timezone', %s, false)", [zone])
    soon = direct.one("SELECT clock_timestamp() + interval '1 hour'")
    job = queue.enqueue(conn, "c", "work", {}, run_after=soon).id
    now = queue.enqueue(conn, "c", "work", {}).id
    worker = direct.worker(conn=conn)
    [claimed] = worker.claim()
    assert claimed.id == now
    assert abs((claimed.leased_until - soon).total_seconds() + 3540) < 5
    direct.pass_time(3601)
    [later] = worker.claim()
    assert later.id == job


@pytest.mark.parametrize("offset", [-12, 0, 14])
def test_a_schedule_means_the_same_moment_in_every_zone(stage: Stage, offset: int) -> None:
    now: datetime = stage.one("SELECT clock_timestamp()")
    there = timezone(timedelta(hours=offset))
    due = stage.enqueue(run_after=(now - timedelta(seconds=1)).astimezone(there))
    stage.enqueue(run_after=(now + timedelta(minutes=10)).astimezone(there))
    assert [c.id for c in stage.worker().claim()] == [due]


def test_a_time_without_a_zone_is_refused(stage: Stage) -> None:
    with pytest.raises(InvalidInput, match=r"run_after: .*time zone"):
        stage.enqueue(run_after=datetime(2030, 1, 1))  # noqa: DTZ001 - the point of the test


def test_a_long_transaction_claims_what_became_due_after_its_start(stage: Stage) -> None:
    conn = stage.connect(autocommit=False)
    conn.execute("SELECT 1")
    job = stage.enqueue()
    worker = stage.worker(conn=conn)
    [claimed] = worker.claim()
    assert claimed.id == job
    began = conn.execute("SELECT now()").fetchone()
    assert began is not None
    assert claimed.enqueued_at > began[0]
    conn.commit()


def test_a_long_transaction_enqueues_at_the_moment_of_the_call(stage: Stage) -> None:
    conn = stage.connect(autocommit=False)
    conn.execute("SELECT 1")
    between = stage.one("SELECT clock_timestamp()")
    job = queue.enqueue(conn, "c", "work", {}).id
    conn.commit()
    assert stage.one("SELECT created_at FROM jobqueue.jobs WHERE id = %s", [job]) > between


def test_a_scheduled_job_starts_at_its_time_and_not_before(stage: Stage) -> None:
    job = stage.enqueue(run_after=stage.one("SELECT clock_timestamp() + interval '100 seconds'"))
    worker = stage.worker()
    assert worker.claim() == []
    stage.pass_time(90)
    assert worker.claim() == []
    stage.pass_time(11)
    [claimed] = worker.claim()
    assert claimed.id == job
    assert claimed.due_at > claimed.enqueued_at


def test_ages_come_from_the_database_and_are_never_negative(stage: Stage) -> None:
    stage.enqueue(run_after=stage.one("SELECT clock_timestamp() + interval '1 hour'"))
    assert stage.snapshot()["oldest_age"] == 0
    stage.enqueue()
    stage.pass_time(30)
    assert 30 <= stage.snapshot()["oldest_age"] < 35
