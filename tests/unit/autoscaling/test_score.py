from __future__ import annotations

import numpy as np
import pytest
from bench.autoscaling.score import above_target, score

from unit.autoscaling.loads import engine


def test_time_above_target_is_a_union_and_its_integral_follows_the_oldest() -> None:
    # Target 10. The first is above from 10 to 14; the second from 12, and is the oldest from 14 to 16.
    lasts, area = above_target(np.array([0.0, 2.0]), np.array([14.0, 16.0]), 10.0)
    assert lasts == 6.0
    assert area == pytest.approx(4**2 / 2 + (4**2 - 2**2) / 2)


def test_a_younger_job_that_begins_first_changes_nothing() -> None:
    lasts, area = above_target(np.array([0.0, 2.0]), np.array([14.0, 5.0]), 10.0)
    assert (lasts, area) == (4.0, 8.0)


def test_the_same_by_brute_force() -> None:
    rng = np.random.default_rng(5)
    due = np.sort(rng.uniform(0, 50, 40))
    start = due + rng.exponential(8.0, 40)
    lasts, area = above_target(due, start, 10.0)
    moments = np.arange(0, 120, 0.01)
    oldest = [min((d for d, s in zip(due, start, strict=True) if d <= t < s), default=t) for t in moments]
    above = np.maximum(moments - np.array(oldest) - 10.0, 0.0)
    assert lasts == pytest.approx(float((above > 0).sum()) * 0.01, abs=0.2)
    assert area == pytest.approx(float(above.sum()) * 0.01, rel=0.02)


def test_a_run_by_hand() -> None:
    run = engine([0.0, 0.0, 90.0], [20.0, 20.0, 30.0], cap=1)
    run.advance(50.0)
    run.create()
    run.advance(60.0)
    run.end(run.pods[0])
    run.advance(100.0)
    found = score(run)
    assert found.violation == pytest.approx(0.1)  # the second waited from 0 to 20, above 10 for 10 of 100 s
    assert found.excess == 50.0
    assert found.late == pytest.approx(1 / 3)
    assert found.pod_seconds == 60 + 50
    assert (found.peak, found.above_cap) == (2, 10.0)
    assert found.cost == pytest.approx(0.105 * 110)


def test_what_still_waits_at_the_end_counts_as_far_as_it_got() -> None:
    run = engine([0.0, 0.0, 95.0], 1000.0)
    run.advance(100.0)
    found = score(run)
    assert found.violation == pytest.approx(0.9)
    assert found.late == pytest.approx(1 / 2)  # the last one is not late yet


def test_a_wake_up_is_the_wait_of_the_first_job_in_an_empty_fleet() -> None:
    run = engine([0.0, 30.0, 31.0], 1.0)
    run.advance(10.0)
    run.end(run.pods[0])
    run.advance(33.0)
    run.create()
    run.advance(100.0)
    assert score(run).wake_ups == (8.0,)
