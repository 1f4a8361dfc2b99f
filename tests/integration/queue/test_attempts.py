"""How long attempts take: those that ended, by when they started, and those that run."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from jobqueue import queue
from jobqueue.signals import decode

if TYPE_CHECKING:
    from integration.queue.stage import Stage
    from jobqueue.signals import AttemptSnapshot, SpanSnapshot


def attempts(stage: Stage, class_: str = "c") -> AttemptSnapshot:
    """Return what the snapshot says of a class's attempts."""
    found = decode(queue.snapshot(stage.conn)).find(class_)
    assert found is not None
    return found.attempts


def total(spans: tuple[SpanSnapshot, ...]) -> tuple[float, float]:
    """Return the number of attempts and the seconds of all."""
    return sum(s.count for s in spans), sum(s.total_seconds for s in spans)


def test_nothing_was_attempted(stage: Stage) -> None:
    found = attempts(stage)
    assert (found.finished, found.running, found.failed) == ((), (), 0)


def test_the_ended_and_the_running_by_their_length(stage: Stage) -> None:
    stage.enqueue_bulk(10)
    worker = stage.worker()
    first = worker.claim(4)
    stage.pass_time(2)
    queue.complete_many(stage.conn, [c.id for c in first[:3]], [c.token for c in first[:3]])
    stage.pass_time(3)
    worker.claim(2)
    stage.pass_time(1)
    found = attempts(stage)
    count, seconds = total(found.finished)
    assert count == 3
    assert seconds == pytest.approx(6, abs=1)
    assert all(2 <= span.longest_seconds < 3 for span in found.finished)
    assert [span.count for span in found.running] == [2, 1]
    assert total(found.running)[1] == pytest.approx(6 + 2 * 1, abs=2)
    count, seconds = found.lately  # ended four seconds ago, within two ticks of five
    assert count == 3
    assert seconds == pytest.approx(6, abs=1)
    assert found.window_seconds > 30, "fewer than 500 starts: it looks further back"


def test_a_failure_counts_and_what_was_given_back_does_not(stage: Stage) -> None:
    stage.enqueue_bulk(5)
    jobs = stage.worker().claim(5)
    stage.pass_time(4)
    queue.fail(stage.conn, jobs[0].id, jobs[0].token, "no", outcome="retry", reason="no")
    queue.fail(stage.conn, jobs[1].id, jobs[1].token, "no", outcome="dead", reason="no")
    queue.release(stage.conn, jobs[2].id, jobs[2].token, reason="draining")
    later = stage.one("SELECT clock_timestamp()") + timedelta(seconds=60)
    queue.snooze(stage.conn, jobs[3].id, jobs[3].token, later)
    queue.complete(stage.conn, jobs[4].id, jobs[4].token)
    found = attempts(stage)
    assert total(found.finished)[0] == 3
    assert found.failed == 2
    assert found.running == ()


def test_starts_of_an_hour_ago_are_forgotten(stage: Stage) -> None:
    stage.enqueue_bulk(2)
    worker = stage.worker()
    old = worker.claim(1)[0]
    stage.pass_time(2)
    queue.complete(stage.conn, old.id, old.token)
    stage.pass_time(11)
    assert attempts(stage).lately == (0, 0)
    stage.pass_time(3600)
    assert attempts(stage).finished == ()


def test_500_starts_are_enough(stage: Stage) -> None:
    stage.enqueue_bulk(1300)
    worker = stage.worker(slots=10_000)
    for seconds in (200, 100, 0):
        jobs = worker.claim(400)
        queue.complete_many(stage.conn, [c.id for c in jobs], [c.token for c in jobs])
        stage.pass_time(seconds)
    found = attempts(stage)
    assert 100 < found.window_seconds < 200
    assert total(found.finished)[0] == pytest.approx(800, rel=0.4), "a sample of pages"


def test_classes_are_told_apart(stage: Stage) -> None:
    stage.define("d")
    stage.enqueue_bulk(3)
    stage.enqueue("d")
    for name in ("c", "d"):
        for job in stage.worker(name).claim(5):
            queue.complete(stage.conn, job.id, job.token)
    assert (total(attempts(stage).finished)[0], total(attempts(stage, "d").finished)[0]) == (3, 1)


def test_ends_in_the_room_that_retention_freed_are_seen(own: Stage) -> None:
    """A quiet queue's table no longer grows at its end: new rows go where the old ones were."""
    own.admin.execute(
        "INSERT INTO jobqueue.outcome"
        " (id, token, worker_id, started_at, finished_at, class_id, attempts, refunds, budget, status)"
        " SELECT nextval('jobqueue.job_id'), 1, 1, clock_timestamp() - interval '1 day',"
        " clock_timestamp() - interval '1 day', (SELECT c.id FROM jobqueue.class c WHERE c.name = 'c'), 1, 0, 0, 'd'"
        " FROM generate_series(1, 50000)"
    )
    own.admin.execute("DELETE FROM jobqueue.outcome WHERE id < 10000")
    own.admin.execute("VACUUM jobqueue.outcome")
    own.enqueue_bulk(1000)
    worker = own.worker(slots=1000)
    for job in worker.claim(20):
        queue.complete(own.conn, job.id, job.token)
    [[page]] = own.admin.execute(
        "SELECT max((ctid::text::point)[0]::int) FROM jobqueue.outcome WHERE started_at > now() - interval '1 hour'"
    ).fetchall()
    assert page < 200, "at the front of the table"
    assert total(attempts(own).finished)[0] == 20
