"""In which order jobs come, for whom, and when not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jobqueue import queue
from jobqueue.errors import UnknownClass
from jobqueue.queue import NewJob

if TYPE_CHECKING:
    from integration.queue.stage import Stage


def test_higher_priorities_first_then_the_oldest(stage: Stage) -> None:
    jobs = [(p, stage.enqueue(priority=p)) for p in (0, 100, -100, 5, 0, 100)]
    worker = stage.worker()
    order = [worker.claim_one().id for _ in jobs]
    assert order == [job for _, job in sorted(jobs, key=lambda pair: (-pair[0], pair[1]))]


def test_a_scheduled_job_of_a_better_priority_holds_nobody_up(stage: Stage) -> None:
    later = stage.one("SELECT clock_timestamp() + interval '1 hour'")
    stage.enqueue(priority=100, run_after=later)
    low = stage.enqueue(priority=-100)
    assert [c.id for c in stage.worker().claim()] == [low]


def test_due_earlier_comes_earlier_whenever_it_was_enqueued(stage: Stage) -> None:
    now = stage.one("SELECT clock_timestamp()")
    late = stage.enqueue(run_after=now)
    early = stage.enqueue(run_after=stage.one("SELECT %s - interval '1 hour'", [now]))
    assert [c.id for c in stage.worker().claim()] == [early, late]


def test_a_worker_gets_the_kinds_and_versions_it_understands(stage: Stage) -> None:
    given = {(k, v): stage.enqueue(kind=k, version=v) for k in ("a", "b") for v in (1, 2)}
    assert [c.id for c in stage.worker(kinds=[("a", 2)]).claim()] == [given["a", 2]]
    assert {c.id for c in stage.worker(kinds=[("a", 1), ("b", 2)]).claim()} == {given["a", 1], given["b", 2]}
    nothing = stage.worker(kinds=[])
    assert nothing.claim() == []
    queue.understand(stage.conn, nothing.id, [("b", 1)])
    assert [c.id for c in nothing.claim()] == [given["b", 1]]


def test_kinds_given_with_the_claim_win(stage: Stage) -> None:
    stage.enqueue(kind="a")
    b = stage.enqueue(kind="b")
    worker = stage.worker(kinds=[("a", 1)])
    assert [c.id for c in worker.claim(kinds=[("b", 1)])] == [b]
    assert worker.claim(kinds=[]) == []


def test_several_kinds_share_a_claim_by_age(stage: Stage) -> None:
    jobs = [stage.enqueue(kind=k) for k in ("a", "b", "a", "b", "b", "a")]
    worker = stage.worker(kinds=[("a", 1), ("b", 1), ("c", 1)])
    assert {c.id for c in worker.claim(4)} == set(jobs[:4])


def test_a_claim_returns_what_was_enqueued(stage: Stage) -> None:
    stage.enqueue(
        payload={"n": [1, None, "é"]},
        version=1,
        key="k",
        tenant="t",
        correlation_id="r-1",
        actor_id="u-1",
        trace_context={"traceparent": "00-1"},
        max_attempts=3,
    )
    got = stage.worker().claim_one()
    assert (got.class_, got.kind, got.version, got.payload) == ("c", "work", 1, {"n": [1, None, "é"]})
    assert (got.correlation_id, got.actor_id, got.tenant, got.trace_context) == (
        "r-1",
        "u-1",
        "t",
        {"traceparent": "00-1"},
    )
    assert (got.attempt, got.max_attempts, got.checkpoint, got.suspect) == (1, 3, None, False)
    assert 0 < got.token < 2**63
    assert got.due_at == got.enqueued_at < got.leased_until


def test_enqueue_many_is_enqueue_for_many(stage: Stage) -> None:
    later = stage.one("SELECT clock_timestamp() + interval '1 hour'")
    options = {
        "version": 2,
        "key": "k",
        "run_after": later,
        "priority": 7,
        "max_attempts": 3,
        "tenant": "t",
        "concurrency_key": "ck",
        "correlation_id": "r-1",
        "actor_id": "u-1",
        "trace_context": {"a": "b"},
    }
    one = stage.enqueue(payload={"n": 1}, **{**options, "key": "k1"})
    [many] = queue.enqueue_many(stage.conn, [NewJob("c", "work", {"n": 1}, **{**options, "key": "k2"})])
    rows = [
        stage.one(
            f"SELECT to_jsonb(x) - '{{id,created_at,key}}'::text[] FROM jobqueue.{table} x WHERE id = %s",  # noqa: S608
            [job],
        )
        for table in ("body", "ready")
        for job in (one, many.id)
    ]
    assert rows[0] == rows[1]
    assert rows[2] == rows[3]


def test_a_floor_skips_what_was_due_before_it(stage: Stage) -> None:
    stage.enqueue()
    moment = stage.one("SELECT clock_timestamp()")
    new = stage.enqueue()
    worker = stage.worker()
    assert [c.id for c in worker.claim(floor=moment)] == [new]
    assert len(worker.claim()) == 1


def test_a_floor_tells_the_jobs_of_one_call_apart(stage: Stage) -> None:
    """Without that, a claim walks over all dead rows of a large call while a snapshot elsewhere keeps them."""
    many = queue.enqueue_many(stage.conn, [NewJob("c", "work", {"n": n}) for n in range(10)])
    worker = stage.worker()
    first = worker.claim(max_jobs=4)
    assert [c.id for c in first] == [j.id for j in many[:4]]
    floor = max(c.due_at for c in first)
    assert all(c.due_at > floor for c in worker.claim(max_jobs=6, floor=floor))
    assert stage.one("SELECT max(due_at) <= clock_timestamp() FROM jobqueue.lease")


def test_a_paused_class_hands_out_nothing_and_what_runs_runs_on(stage: Stage) -> None:
    jobs = [stage.enqueue() for _ in range(2)]
    worker = stage.worker()
    claimed = worker.claim_one()
    queue.set_paused(stage.admin, None, "c", paused=True)
    assert worker.claim() == []
    assert queue.heartbeat(stage.conn, worker.id).paused is True
    [renewed] = queue.extend(stage.conn, worker.id, [jobs[0]], [claimed.token])
    assert renewed.result == "extended"
    assert queue.complete(stage.conn, jobs[0], claimed.token) == "done"
    stage.enqueue()
    queue.set_paused(stage.admin, None, "c", paused=False)
    assert len(worker.claim()) == 2


def test_a_paused_class_hands_out_no_suspect_either(stage: Stage) -> None:
    stage.enqueue()
    worker = stage.worker()
    worker.claim_one()
    stage.pass_time(61)
    stage.sweep()
    queue.set_paused(stage.admin, None, "c", paused=True)
    assert worker.claim_any() == []


def test_an_unknown_class_is_refused_everywhere(stage: Stage) -> None:
    worker = stage.worker()
    with pytest.raises(UnknownClass):
        queue.claim(stage.conn, "nope", worker.id, 1, max_jobs=1)
    with pytest.raises(UnknownClass):
        stage.worker("nope")
    with pytest.raises(UnknownClass):
        queue.set_paused(stage.admin, None, "nope", paused=True)
