"""The others' best parameters in hindsight."""

from __future__ import annotations

import pytest
from bench.autoscaling.catalogue import FAMILIES
from bench.autoscaling.contest import Entry, Match, Played, Tuning
from bench.autoscaling.load import Kind, StartDelay
from bench.autoscaling.oracle import tuned
from bench.autoscaling.score import Score
from bench.autoscaling.verdict import cost_ratio, times_better

GRID = list(FAMILIES["steps"].grid())


def scored(pod_seconds: float, violation: float = 0.0) -> Score:
    return Score(
        violation=violation,
        excess=0.0,
        late=violation,
        p99_wait=0.0,
        pod_seconds=pod_seconds,
        peak=1,
        above_cap=0.0,
        killed=0,
        actions=0,
        wake_ups=(),
        jobs=1,
    )


def played(name: str, kind: Kind, tried: dict[int, float], else_: float = 1000.0) -> Played:
    """Return a match in which the settings with these places in the grid cost that many pod-seconds."""
    match = Match(name, 1, StartDelay(8.0), ("planner", "steps"), tune=True)
    entries = (
        Entry("planner", Tuning.DEFAULT, {}, scored(20.0)),
        Entry("steps", Tuning.DEFAULT, FAMILIES["steps"].default, scored(50.0)),
    )
    scores = [scored(tried.get(k, else_)) for k in range(len(GRID))]
    return Played(match, kind, 1, 10.0, entries, {"steps": scores})


def test_each_workload_has_its_own_best_and_all_share_the_one_of_the_least_geometric_mean() -> None:
    found = tuned([played("a", Kind.SMOOTH, {0: 10.0, 2: 20.0}), played("b", Kind.BURST, {1: 30.0, 2: 40.0})])
    assert [p.of("steps", Tuning.EACH).pod_seconds for p in found] == [10.0, 30.0]
    assert [p.of("steps", Tuning.ONCE).pod_seconds for p in found] == [20.0, 40.0]
    assert [e.values for e in found[0].entries if e.tuning is Tuning.ONCE] == [GRID[2]]
    assert [e.values for e in found[1].entries if e.tuning is Tuning.EACH] == [GRID[1]]


def test_sparse_load_has_no_say_in_the_one_setting() -> None:
    found = tuned([played("a", Kind.SMOOTH, {0: 10.0}), played("b", Kind.SPARSE, {1: 0.001})])
    assert [p.of("steps", Tuning.ONCE).pod_seconds for p in found] == [10.0, 1000.0]


def test_the_searched_settings_kill_nobody() -> None:
    for family in FAMILIES.values():
        assert all(values["grace"] >= 3600 for values in family.grid())


def test_means_are_geometric() -> None:
    runs = tuned([played("a", Kind.SMOOTH, {0: 10.0}), played("b", Kind.BURST, {0: 90.0})])
    assert cost_ratio(runs, "steps", Tuning.ONCE) == pytest.approx(3.0)
    assert times_better(runs, "steps", Tuning.ONCE) == pytest.approx(1.5)
    assert times_better(runs, "steps") == pytest.approx(2.5)
