"""The figures that the planner should reach, each with what was measured and whether that reaches it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import exp, log
from statistics import fmean
from typing import TYPE_CHECKING

from bench.autoscaling.catalogue import AT_CAP, OTHERS, OURS
from bench.autoscaling.contest import Tuning
from bench.autoscaling.load import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bench.autoscaling.contest import Played

POINT = 0.01
COST_LIMITS = {
    Kind.SMOOTH: 1.25,
    Kind.HEAVY: 1.25,
    Kind.BURST: 2.0,
    Kind.IDLE: 1.5,
}
MEAN_COST_LIMIT = 1.3
BEST_OTHER, HPA_AND_KEDA = 1.6, 2.0
HOW = {
    Tuning.DEFAULT: "with its defaults",
    Tuning.ONCE: "tuned in hindsight, one setting for all workloads",
    Tuning.EACH: "tuned in hindsight on each workload",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure."""

    what: str
    wanted: str
    measured: str
    reached: bool


def geometric(values: Iterable[float]) -> float:
    """Return the geometric mean. Raises StatisticsError when there is no value."""
    return exp(fmean(log(value) for value in values))


def dense(played: Sequence[Played]) -> list[Played]:
    """Leave sparse load out: a fraction of one pod says nothing about a law."""
    return [p for p in played if p.kind is not Kind.SPARSE]


def cost_ratio(played: Sequence[Played], policy: str, tuning: Tuning = Tuning.DEFAULT) -> float:
    """Return the geometric mean of pod-seconds against the bound."""
    return geometric(p.of(policy, tuning).pod_seconds / p.bound for p in played)


def times_better(played: Sequence[Played], policy: str, tuning: Tuning = Tuning.DEFAULT, *, ours: str = OURS) -> float:
    """Return how many times lower the planner's (violation + 0.5 %) x pod-seconds is, in the geometric mean."""
    return geometric(p.of(policy, tuning).cost / p.of(ours).cost for p in played)


def figures(played: Sequence[Played], ours: str = OURS) -> list[Figure]:
    """Judge the planner on these matches, of one start delay or several."""
    found = [
        _most("seconds with more pods than the cap", played, lambda p: p.of(ours).above_cap, 0, "{:.0f}"),
        _most("busy jobs killed by scaling in", played, lambda p: p.of(ours).killed, 0, "{:.0f}"),
    ]
    kept = [p for p in played if p.of(AT_CAP).violation < POINT]
    over = [p for p in played if p.kind is Kind.OVERLOAD]
    for among, points, name in ((kept, 1, "where that is under 1 %"), (over, 2, "in overload")):
        for share in ("violation", "late"):
            what = f"{'time' if share == 'violation' else 'jobs'} above target beyond always at cap, {name}"
            found.append(_most(what, among, partial(_beyond_cap, share=share, ours=ours), points))
    for kind, limit in COST_LIMITS.items():
        of_kind = [p for p in played if p.kind is kind]
        what = f"pod-seconds to the bound, {kind}"
        found.append(_most(what, of_kind, lambda p: p.of(ours).pod_seconds / p.bound, limit))
    filled = dense(played)
    if filled:
        found.append(_at_most("pod-seconds to the bound, geometric mean", cost_ratio(filled, ours), MEAN_COST_LIMIT))
        found.extend(_against_others(filled, ours))
    return [figure for figure in found if figure.measured]


def _beyond_cap(played: Played, share: str, ours: str) -> float:
    own, least = getattr(played.of(ours), share), getattr(played.of(AT_CAP), share)
    return float(100 * (own - least))


def _against_others(played: Sequence[Played], ours: str) -> Iterable[Figure]:
    run = [policy for policy in OTHERS if any(e.policy == policy for e in played[0].entries)]
    if not run:
        return
    for tuning in played[0].tunings:
        ratios = {policy: times_better(played, policy, tuning, ours=ours) for policy in run}
        best = min(ratios, key=ratios.__getitem__)
        what = f"score, times better than the best other, {best}, {HOW[tuning]}"
        yield _at_least(what, ratios[best], BEST_OTHER)
    for policy in run:
        if policy.startswith(("HPA", "KEDA")):
            ratio = times_better(played, policy, ours=ours)
            yield _at_least(f"score, times better than {policy} with its defaults", ratio, HPA_AND_KEDA)


def _most(
    what: str, played: Sequence[Played], of: Callable[[Played], float], limit: float, form: str = "{:.2f}"
) -> Figure:
    if not played:
        return Figure(what, "", "", reached=True)
    worst = max(played, key=of)
    value = of(worst)
    where = "" if value <= 0 else f" ({worst.match.workload}, {worst.match.delay.typical:.0f} s)"
    return Figure(what, f"≤ {limit:g}", form.format(value) + where, value <= limit)


def _at_most(what: str, value: float, limit: float) -> Figure:
    return Figure(what, f"≤ {limit:g}", f"{value:.2f}", value <= limit)


def _at_least(what: str, value: float, limit: float) -> Figure:
    return Figure(what, f"≥ {limit:g}", f"{value:.2f}", value >= limit)
