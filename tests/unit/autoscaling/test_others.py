"""Each policy against cases worked out by hand from its published formula."""

from __future__ import annotations

import pytest
from bench.autoscaling.policies.fixed import AlwaysAtCap
from bench.autoscaling.policies.hpa import Behavior, Hpa, average_value, by_age, by_backlog, by_depth, value
from bench.autoscaling.policies.keda import Keda
from bench.autoscaling.policies.knative import Decider, Kpa
from bench.autoscaling.policies.policy import Deployment, View
from bench.autoscaling.policies.steps import Steps, adjusted, change

from unit.autoscaling.loads import engine


class TestHpa:
    @pytest.mark.parametrize(
        ("usage", "target", "replicas", "wanted"),
        [
            (105.0, 10.0, 10, 10),  # ratio 1.05: within the tolerance
            (112.0, 10.0, 10, 12),  # 1.12: ceil(11.2)
            (31.0, 10.0, 10, 4),  # ceil(3.1)
            (5.0, 10.0, 0, 1),
        ],
    )
    def test_average_value(self, usage: float, target: float, replicas: int, wanted: int) -> None:
        assert average_value(usage, target, replicas) == wanted

    @pytest.mark.parametrize(
        ("usage", "ready", "replicas", "wanted"),
        [(33.0, 4, 5, 5), (45.0, 4, 5, 6), (90.0, 3, 3, 9), (0.0, 4, 4, 0)],
    )
    def test_value_multiplies_the_ready_pods(self, usage: float, ready: int, replicas: int, wanted: int) -> None:
        assert value(usage, 30.0, ready, replicas) == wanted

    def test_up_by_four_or_double_in_fifteen_seconds(self) -> None:
        behavior = Behavior(1, 100)
        assert behavior.normalized(0.0, 1, 50) == 5
        assert behavior.normalized(5.0, 5, 50) == 5  # the same period: the four are used up
        assert behavior.normalized(15.0, 5, 50) == 10
        assert behavior.normalized(30.0, 10, 50) == 20

    def test_down_to_the_highest_of_the_last_five_minutes(self) -> None:
        behavior = Behavior(1, 100)
        assert behavior.normalized(0.0, 10, 8) == 8
        assert behavior.normalized(15.0, 8, 3) == 8
        assert behavior.normalized(301.0, 8, 2) == 3
        assert behavior.normalized(316.0, 3, 2) == 2

    def test_never_below_the_least_nor_above_the_most(self) -> None:
        assert Behavior(2, 100).normalized(0.0, 3, 0) == 2
        assert Behavior(1, 6).normalized(0.0, 4, 50) == 6

    def test_each_reads_its_own_metric(self) -> None:
        seen = View(now=0.0, waiting=30, running=10, oldest_age=60.0, replicas=2, ready=2)
        assert by_depth(4.0)(seen) == 10
        assert by_backlog(4.0)(seen) == 8
        assert by_age(30.0)(seen) == 4

    def test_it_scales_its_deployment(self) -> None:
        run = engine([0.0] * 9, 50.0)
        run.advance(1.0)
        Hpa(by_depth(3.0), Behavior(1, 10)).act(run)
        assert len(run.alive) == 3


class TestKeda:
    def test_from_zero_to_one_at_a_poll_then_as_the_hpa_and_to_zero_after_the_cooldown(self) -> None:
        run = engine([5.0] * 12, 20.0, first=0, slots=4, horizon=1000.0)
        keda = Keda(4.0, Behavior(1, 10, down_window=0.0), cooldown=100.0)
        pods = []
        for k in range(1, 20):
            run.advance(15.0 * k - 14.0)
            keda.act(run)
            pods.append((run.now, sum(not pod.ending for pod in run.alive)))
        # Polls at 1, 31, 61: active at 31; 12 jobs at 46 make three pods; 8 are left at 61, the last active poll.
        assert pods[:6] == [(1.0, 0), (16.0, 0), (31.0, 1), (46.0, 3), (61.0, 2), (76.0, 1)]
        assert next(at for at, many in pods[6:] if many == 0) == 181.0


class TestKpa:
    def test_stable_mode_divides_the_mean_concurrency(self) -> None:
        decider = Decider(target=7.0)
        assert decider.desired(0.0, 20.0, 3) == 3  # ceil(20/7)
        assert decider.desired(2.0, 30.0, 3) == 4  # mean 25

    def test_panic_at_twice_the_ready_pods_and_never_down_until_a_stable_window_later(self) -> None:
        decider = Decider(target=10.0)
        assert decider.desired(0.0, 10.0, 2) == 1
        assert decider.desired(2.0, 70.0, 2) == 4  # panic mean 40 → 4, twice the ready 2
        assert decider.desired(4.0, 0.0, 4) == 4  # panic mean 26.7 → 3, kept at 4
        assert decider.desired(62.0, 0.0, 4) == 4  # exactly a window later: still panicking
        assert decider.desired(64.0, 0.0, 4) == 2  # stable again: a half at most

    def test_to_zero_after_an_idle_window_and_the_grace(self) -> None:
        run = engine([0.0], 1.0, slots=10, horizon=1000.0)
        kpa = Kpa(Decider(7.0), 10)
        zero_at = None
        for k in range(1, 100):
            run.advance(2.0 * k - 1.5)
            kpa.act(run)
            if zero_at is None and not run.alive:
                zero_at = run.now
        # Seen at 0.5 alone; out of the window at 60.5, and the grace is over 30 s later.
        assert zero_at == 90.5


class TestSteps:
    @pytest.mark.parametrize(
        ("metric", "percent"),
        [(50, 0), (59, 0), (60, 10), (69, 10), (70, 30), (41, 0), (40, -10), (31, -10), (30, -30)],
    )
    def test_the_example_of_the_documentation(self, metric: float, percent: float) -> None:
        assert change(metric, 50.0) == percent

    @pytest.mark.parametrize(
        ("capacity", "percent", "wanted"), [(10, 10, 11), (4, 10, 5), (7, 30, 9), (5, -10, 4), (16, -10, 15)]
    )
    def test_rounding(self, capacity: int, percent: float, wanted: int) -> None:
        assert adjusted(capacity, percent) == wanted

    def test_what_warms_up_is_not_added_twice(self) -> None:
        run = engine([0.0] * 50, 90.0, first=4, delay=80.0)
        steps = Steps(10.0, 10)
        counts = []
        for moment in (30.0, 60.0, 90.0, 120.0):
            run.advance(moment)
            steps.act(run)
            counts.append(len(run.alive))
        assert counts == [4, 5, 5, 5]


def test_always_at_cap_is_at_the_cap() -> None:
    run = engine([0.0], 1.0, cap=7)
    AlwaysAtCap(run.load).act(run)
    assert len(run.alive) == 7


def test_a_deployment_ends_who_is_not_ready_then_the_youngest() -> None:
    run = engine([], 1.0)
    run.advance(1.0)
    run.create()
    run.advance(20.0)
    run.create()
    Deployment().scale(run, 2)
    assert [pod.number for pod in run.alive] == [0, 1]
    Deployment().scale(run, 1)
    assert [pod.number for pod in run.alive] == [0]
