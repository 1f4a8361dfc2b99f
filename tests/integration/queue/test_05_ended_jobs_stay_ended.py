"""Invariant 5: done, dead and cancelled are left only through redrive, and a bad row stops no sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from integration.queue.test_02_every_write_names_its_token import SINGLE
from jobqueue import queue
from jobqueue.errors import StaleLease

if TYPE_CHECKING:
    from integration.queue.stage import Stage

ENDS = ["done", "dead", "cancelled"]


def _ended(stage: Stage, how: str) -> queue.Claimed:
    stage.enqueue()
    claimed = stage.worker().claim_one()
    if how == "done":
        queue.complete(stage.conn, claimed.id, claimed.token)
    else:
        queue.fail(stage.conn, claimed.id, claimed.token, "boom", outcome=how)
    assert stage.status(claimed.id) == how
    return claimed


@pytest.mark.parametrize("write", SINGLE)
@pytest.mark.parametrize("how", ENDS)
def test_no_write_leads_out(stage: Stage, how: str, write: str) -> None:
    claimed = _ended(stage, how)
    before = stage.job(claimed.id)
    for token in (claimed.token, claimed.token + 1):
        try:
            answer = SINGLE[write](stage.conn, claimed.id, token)
        except StaleLease:
            continue
        assert getattr(answer, "result", answer) == "already"
    assert stage.job(claimed.id) == before


@pytest.mark.parametrize("how", ENDS)
def test_neither_time_nor_sweep_nor_cancel_nor_enqueue_leads_out(stage: Stage, how: str) -> None:
    job = stage.enqueue(key="k")
    worker = stage.worker()
    claimed = worker.claim_one()
    if how == "done":
        queue.complete(stage.conn, job, claimed.token)
    else:
        queue.fail(stage.conn, job, claimed.token, "boom", outcome=how)
    stage.pass_time(3600)
    stage.sweep()
    assert queue.forget_worker(stage.conn, worker.id) == 0
    assert queue.cancel(stage.conn, job) == "finished"
    assert queue.enqueue(stage.conn, "c", "work", {}, key="k") == (job, False)
    assert stage.status(job) == how
    assert stage.worker().claim_any() == []


@pytest.mark.parametrize("how", ENDS)
def test_redrive_leads_out_and_done_only_by_force(stage: Stage, how: str) -> None:
    job = _ended(stage, how).id
    [plain] = queue.redrive(stage.conn, [job])
    assert plain.result == ("skipped: done" if how == "done" else "redriven")
    if how == "done":
        assert stage.status(job) == "done"
        [forced] = queue.redrive(stage.conn, [job], force=True)
        assert forced.result == "redriven"
    assert stage.job(job)[:2] == ("pending", 0)


def test_one_bad_row_stops_no_sweep(stage: Stage) -> None:
    jobs = [stage.enqueue() for _ in range(4)]
    stage.worker().claim()
    bad = jobs[1]
    stage.admin.execute("DELETE FROM jobqueue.body WHERE id = %s", [bad])
    stage.pass_time(61)
    assert stage.sweep().requeued == 3
    assert {j: stage.status(j) for j in jobs if j != bad} == {j: "pending" for j in jobs if j != bad}
    assert stage.one("SELECT array_agg(id) FROM jobqueue.lease") == [bad]


def test_the_sweep_looks_at_each_row_again(own: Stage) -> None:
    """While it is at the first job, the second one's lease is renewed, and the third one's token changes hands."""
    jobs = [own.enqueue() for _ in range(3)]
    own.worker().claim()
    own.pass_time(61)
    own.admin.execute(
        "CREATE FUNCTION public.meanwhile() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        "  UPDATE jobqueue.lease SET leased_until = clock_timestamp() + interval '1 minute' WHERE id > NEW.job_id;"
        "  RETURN NULL; END $$;"
        "CREATE TRIGGER meanwhile AFTER INSERT ON jobqueue.attempt FOR EACH ROW EXECUTE FUNCTION public.meanwhile()"
    )
    own.admin.execute("GRANT USAGE ON SCHEMA public TO jobqueue_owner")
    assert own.sweep().requeued == 1
    assert [own.status(j) for j in jobs] == ["pending", "running", "running"]


def test_a_sweep_skips_what_is_being_acknowledged(stage: Stage) -> None:
    jobs = [stage.enqueue() for _ in range(2)]
    claimed = stage.worker().claim()
    conn = stage.connect(autocommit=False)
    queue.complete(conn, jobs[0], claimed[0].token)
    stage.admin.execute("UPDATE jobqueue.lease SET leased_until = clock_timestamp() WHERE id = %s", [jobs[1]])
    assert stage.sweep().requeued == 1
    conn.commit()
    assert [stage.status(j) for j in jobs] == ["done", "pending"]


def test_a_sweep_is_bounded_and_goes_on(stage: Stage) -> None:
    stage.enqueue_bulk(7)
    stage.worker().claim()
    stage.pass_time(61)
    swept = [queue.sweep(stage.conn, 3).requeued for _ in range(4)]
    assert swept == [3, 3, 1, 0]
