"""The planner on a few workloads of an hour: no worse than it has been. The full set is `make simulate`."""

from __future__ import annotations

import pytest
from bench.autoscaling.catalogue import AT_CAP, OURS
from bench.autoscaling.contest import Match, Played, play
from bench.autoscaling.load import StartDelay
from bench.autoscaling.verdict import cost_ratio, figures

# Workload and start delay; most pod-seconds as a multiple of the clairvoyant bound.
COSTS = {
    ("step up", 8.0): 1.2,
    ("step up", 30.0): 1.25,
    ("pareto", 8.0): 1.2,
    ("batch drops", 30.0): 2.0,
    ("idle gaps", 8.0): 1.5,
    ("worker kills", 30.0): 1.25,
    ("overload", 8.0): 1.2,
}


@pytest.fixture(scope="module")
def runs() -> list[Played]:
    return [play(Match(name, 1, StartDelay(delay), (OURS, AT_CAP), tune=False)) for name, delay in COSTS]


def test_pod_seconds_are_near_the_clairvoyant_bound(runs: list[Played]) -> None:
    found = {(p.match.workload, p.match.delay.typical): p.of(OURS).pod_seconds / p.bound for p in runs}
    assert {key: ratio for key, ratio in found.items() if not 1 <= ratio <= COSTS[key]} == {}
    assert cost_ratio(runs, OURS) <= 1.3


def test_every_figure_is_reached(runs: list[Played]) -> None:
    assert [f"{f.what}: {f.measured}, not {f.wanted}" for f in figures(runs) if not f.reached] == []


def test_workers_never_exceed_the_cap_and_no_busy_one_is_killed(runs: list[Played]) -> None:
    assert [(p.of(OURS).above_cap, p.of(OURS).killed) for p in runs] == [(0.0, 0)] * len(runs)
    assert max(p.of(OURS).peak for p in runs) > 10
