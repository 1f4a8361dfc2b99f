"""Invariant 12: full-jitter backoff, capped and without overflow; the handler's word wins; redrives are spread."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from jobqueue import queue
from jobqueue.errors import InvalidInput

if TYPE_CHECKING:
    from integration.queue.stage import Stage

DELAYS = (
    "SELECT min(d), avg(d), max(d) FROM (SELECT extract(epoch FROM jobqueue.backoff("
    "%s, make_interval(secs => %s), %s, make_interval(secs => %s)))::float8 AS d FROM generate_series(1, 4000)) x"
)


@pytest.mark.parametrize(
    ("attempts", "initial", "factor", "most", "cap"),
    [
        (1, 2, 2, 600, 2),
        (2, 2, 2, 600, 4),
        (5, 2, 2, 600, 32),
        (10, 2, 2, 600, 600),
        (1000, 2, 2, 600, 600),
        (1000, 0.001, 100, 2_592_000, 2_592_000),
        (32767, 0.001, 100, 2_592_000, 2_592_000),
        (1000, 3, 1, 600, 3),
        (7, 5, 1, 5, 5),
        (0, 2, 2, 600, 2),
    ],
)
def test_the_delay_is_uniform_up_to_its_cap(
    direct: Stage, attempts: int, initial: float, factor: float, most: float, cap: float
) -> None:
    row = direct.admin.execute(DELAYS, [attempts, initial, factor, most]).fetchone()
    assert row is not None
    least, mean, largest = row
    assert 0 <= least < cap * 0.02
    assert cap * 0.45 < mean < cap * 0.55
    assert cap * 0.98 < largest <= cap


def test_a_failure_waits_by_its_classs_backoff(stage: Stage) -> None:
    stage.define("c", backoff_initial_seconds=100, backoff_factor=3, backoff_max_seconds=10_000, max_attempts=10)
    job = stage.enqueue()
    worker = stage.worker()
    for cap in (100, 300, 900):
        claimed = worker.claim_one()
        failed = queue.fail(stage.conn, job, claimed.token, "boom")
        assert failed.result == "retry"
        wait = stage.one("SELECT extract(epoch FROM run_after - clock_timestamp())::float8 FROM jobqueue.ready")
        assert -1 < wait <= cap
        assert failed.run_after == stage.one("SELECT run_after FROM jobqueue.jobs")
        stage.pass_time(cap)


def test_the_thousandth_attempt_of_the_steepest_class(stage: Stage) -> None:
    stage.define("c", backoff_initial_seconds=1, backoff_factor=100, backoff_max_seconds=2_592_000, max_attempts=1000)
    job = stage.enqueue()
    stage.admin.execute("UPDATE jobqueue.ready SET attempts = 998")
    claimed = stage.worker().claim_one()
    assert claimed.attempt == 999
    assert queue.fail(stage.conn, job, claimed.token, "boom").result == "retry"
    stage.pass_time(2_592_000)
    stage.admin.execute("UPDATE jobqueue.worker SET seen_at = clock_timestamp()")
    last = stage.worker().claim_one()
    assert last.attempt == 1000
    assert queue.fail(stage.conn, job, last.token, "boom").result == "dead"


@pytest.mark.parametrize("after", [0, 1, 86_400, 365 * 86_400])
def test_the_handlers_word_wins(stage: Stage, after: int) -> None:
    job = stage.enqueue()
    claimed = stage.worker().claim_one()
    failed = queue.fail(stage.conn, job, claimed.token, "boom", retry_after=timedelta(seconds=after))
    assert failed.result == "retry"
    wait = stage.one("SELECT extract(epoch FROM run_after - clock_timestamp())::float8 FROM jobqueue.ready")
    assert after - 2 < wait <= after


def test_a_batch_of_failures_spreads_over_the_jitter(stage: Stage) -> None:
    stage.define("c", backoff_initial_seconds=1000, backoff_max_seconds=1000)
    stage.enqueue_bulk(300)
    batch = stage.worker().claim(300)
    n = len(batch)
    queue.fail_many(
        stage.conn,
        [c.id for c in batch],
        [c.token for c in batch],
        ["boom"] * n,
        ["retry"] * n,
        [None] * n,
        [None] * n,
    )
    row = stage.admin.execute(
        "SELECT count(DISTINCT run_after), extract(epoch FROM max(run_after) - min(run_after))::float8"
        " FROM jobqueue.ready"
    ).fetchone()
    assert row is not None
    assert row[0] > 290
    assert 800 < row[1] <= 1000


def test_a_bulk_redrive_is_spread(stage: Stage) -> None:
    stage.define("c", max_attempts=1)
    stage.enqueue_bulk(300)
    batch = stage.worker().claim(300)
    for claimed in batch:
        queue.fail(stage.conn, claimed.id, claimed.token, "boom")
    assert queue.redrive_where(stage.conn, class_="c", spread=timedelta(hours=1)) == 300
    row = stage.admin.execute(
        "SELECT extract(epoch FROM min(run_after) - clock_timestamp())::float8,"
        " extract(epoch FROM max(run_after) - clock_timestamp())::float8, count(DISTINCT run_after) FROM jobqueue.ready"
    ).fetchone()
    assert row is not None
    assert -5 < row[0] < 300
    assert 3300 < row[1] <= 3600
    assert row[2] > 290


def test_without_a_spread_a_redrive_is_due_at_once(stage: Stage) -> None:
    job = stage.enqueue()
    queue.fail(stage.conn, job, stage.worker().claim_one().token, "boom", outcome="dead")
    queue.redrive(stage.conn, [job])
    assert stage.worker().claim_one().id == job


@pytest.mark.parametrize("spread", [timedelta(seconds=-1), timedelta(days=31)])
def test_the_spread_is_bounded(stage: Stage, spread: timedelta) -> None:
    with pytest.raises(InvalidInput, match="spread: "):
        queue.redrive(stage.conn, [1], spread=spread)
