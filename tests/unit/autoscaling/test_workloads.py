"""What is drawn: the same for the same seed, and with the parameters that are claimed."""

from __future__ import annotations

import numpy as np
import pytest
from bench.autoscaling.arrivals import bounded_pareto, bounded_pareto_mean, lognormal, poisson, two_states
from bench.autoscaling.load import Kind, StartDelay
from bench.autoscaling.workloads import NAMES, workload


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_is_one_workload(name: str) -> None:
    once, again, other = workload(name, 1), workload(name, 1), workload(name, 2)
    assert np.array_equal(once.due, again.due)
    assert np.array_equal(once.service, again.service)
    assert not np.array_equal(once.due, other.due)
    assert len(once.due) == len(once.service)
    assert (np.diff(once.due) >= 0).all()
    assert once.due[0] >= 0
    assert once.due[-1] < once.horizon


@pytest.mark.parametrize("name", NAMES)
def test_the_cap_can_carry_the_work_and_only_sparse_load_needs_less_than_a_pod(name: str) -> None:
    load = workload(name, 1)
    pods = load.service.sum() / load.horizon / load.slots
    assert pods < load.cap
    assert (pods < 1) == (load.kind is Kind.SPARSE)


def test_overload_is_more_than_its_cap_carries() -> None:
    load = workload("overload", 1)
    within = (load.due > 1200) & (load.due < 1800)
    assert load.service[within].sum() / 600 / load.slots > load.cap


def test_a_poisson_process_has_its_rate() -> None:
    due = poisson(np.random.default_rng(1), lambda t: np.where(t < 500, 2.0, 20.0), 1000.0)
    assert (due < 500).sum() == pytest.approx(1000, rel=0.1)
    assert (due >= 500).sum() == pytest.approx(10_000, rel=0.05)


def test_two_states_alternate_for_the_times_asked_for() -> None:
    rate = two_states(np.random.default_rng(1), (1.0, 9.0), (240.0, 80.0), 400_000.0)
    rates = rate(np.arange(0.0, 400_000.0))
    assert set(rates.tolist()) == {1.0, 9.0}
    assert (rates == 1.0).mean() == pytest.approx(0.75, abs=0.03)


def test_lengths_have_their_mean_and_spread() -> None:
    drawn = lognormal(np.random.default_rng(1), 3.2, 0.7, 200_000)
    assert drawn.mean() == pytest.approx(3.2, rel=0.01)
    assert drawn.std() / drawn.mean() == pytest.approx(0.7, rel=0.02)


def test_a_bounded_pareto_has_its_mean_bounds_and_tail() -> None:
    drawn = bounded_pareto(np.random.default_rng(1), 1.2, 0.6, 600.0, 400_000)
    assert drawn.mean() == pytest.approx(bounded_pareto_mean(1.2, 0.6, 600.0), rel=0.05)
    assert drawn.min() >= 0.6
    assert drawn.max() <= 600.0
    # P(S > 6) is the plain power 10 ** -1.2, less what the upper bound cuts off.
    cut = (0.6 / 600) ** 1.2
    assert (drawn > 6).mean() == pytest.approx((10**-1.2 - cut) / (1 - cut), rel=0.05)


def test_a_start_delay_is_fixed_or_the_same_draw_for_the_same_pod() -> None:
    assert StartDelay(30.0).of(7) == 30.0
    spread = StartDelay(30.0, 0.5)
    assert spread.of(7) == spread.of(7)
    assert np.median([spread.of(pod) for pod in range(2000)]) == pytest.approx(30.0, rel=0.05)
