from math import inf

import numpy as np
import pytest
from bench.autoscaling.load import Slowdown

from unit.autoscaling.loads import engine


def test_jobs_wait_for_the_first_free_slot_in_order() -> None:
    run = engine([0.0, 1.0, 1.5], [4.0, 2.0, 1.0])
    run.advance(100.0)
    assert run.log.start == [0.0, 4.0, 6.0]
    assert run.log.end == [4.0, 6.0, 7.0]


def test_a_new_pod_takes_jobs_after_its_start_delay() -> None:
    run = engine([0.0, 0.0, 0.0], 10.0)
    run.advance(2.0)
    assert run.waiting == 2
    run.create()
    run.advance(7.5)
    assert run.log.start == [0.0, 7.0]
    assert run.in_flight == 2
    assert run.waiting == 1
    assert run.oldest_due == 0.0


def test_nothing_starts_at_or_after_the_moment_advanced_to() -> None:
    run = engine([5.0], 1.0)
    run.advance(5.0)
    assert run.log.start == []
    assert run.waiting == 1
    run.advance(5.1)
    assert run.log.start == [5.0]


def test_a_closed_pod_finishes_and_claims_nothing_until_it_is_reopened() -> None:
    run = engine([0.0, 1.0], 4.0)
    run.advance(2.0)
    run.close(run.pods[0])
    run.advance(6.0)
    assert run.log.start == [0.0]
    run.reopen(run.pods[0])
    run.advance(20.0)
    assert run.log.start == [0.0, 6.0]


def test_a_pod_taken_back_while_busy_has_each_slot_once() -> None:
    run = engine([0.0, 1.0, 1.0], 4.0)
    run.advance(2.0)
    run.close(run.pods[0])
    run.reopen(run.pods[0])
    run.advance(20.0)
    assert run.log.start == [0.0, 4.0, 8.0]


def test_an_ending_pod_costs_until_its_jobs_are_done_and_kills_what_outlasts_the_grace() -> None:
    patient = engine([0.0], 50.0)
    patient.advance(10.0)
    patient.end(patient.pods[0])
    assert patient.pods[0].gone_at == 50.0
    assert patient.log.killed == 0
    hasty = engine([0.0], 50.0)
    hasty.advance(10.0)
    hasty.end(hasty.pods[0], grace=30.0)
    hasty.create()
    hasty.advance(99.0)
    assert hasty.pods[0].gone_at == 40.0
    assert hasty.log.killed == 1
    assert hasty.log.due == [0.0, 40.0]
    assert hasty.log.attempt == [1, 2]


def test_a_dead_workers_job_is_claimable_when_its_lease_ends_and_a_new_pod_comes() -> None:
    run = engine([0.0], 30.0, kills=(10.0,), lease=60.0, jitter=np.array([0.4]))
    run.advance(20.0)
    assert run.in_flight == 1
    assert run.waiting == 0
    assert [pod.gone_at for pod in run.pods] == [10.0, inf]
    run.advance(100.0)
    assert run.log.start == [0.0, 68.0]
    assert run.log.lost == {0}


def test_a_failed_attempt_comes_back_after_its_backoff() -> None:
    run = engine([0.0], 1.0, failures=np.array([2]), jitter=np.array([0.5]), backoff=(4.0, 3.0, 100.0))
    run.advance(100.0)
    assert run.log.due == [0.0, 3.0, 10.0]
    assert run.log.attempt == [1, 2, 3]


def test_a_lost_attempt_that_would_have_failed_comes_back_once() -> None:
    run = engine([0.0], 30.0, kills=(10.0,), failures=np.array([1]), jitter=np.array([0.0]), lease=60.0, horizon=200.0)
    run.advance(200.0)
    assert run.log.attempt == [1, 2]
    assert run.log.start == [0.0, 70.0]


def test_jobs_take_longer_when_more_run_than_the_downstream_serves() -> None:
    run = engine([0.0, 0.0], 4.0, slots=2, slowdown=Slowdown(1))
    run.advance(50.0)
    assert run.log.end == [4.0, 8.0]


@pytest.mark.parametrize(("after", "until", "count"), [(0.0, 3.0, 2), (1.0, 3.0, 1), (3.0, 9.0, 0)])
def test_what_became_due_is_counted_with_the_later_moment_included(after: float, until: float, count: int) -> None:
    assert engine([0.5, 3.0, 9.5], 1.0).due_between(after, until) == count
