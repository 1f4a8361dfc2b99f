"""The runs as tables for people and as JSON for machines."""

from __future__ import annotations

from dataclasses import asdict
from statistics import fmean
from typing import TYPE_CHECKING, Any

from bench.autoscaling.catalogue import AT_CAP, CALM, OTHERS, OURS
from bench.autoscaling.contest import Tuning
from bench.autoscaling.score import FLOOR
from bench.autoscaling.verdict import HOW, cost_ratio, dense, figures, geometric, times_better
from bench.report import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.autoscaling.contest import Played
    from bench.autoscaling.score import Score


NOTE = """bound: pod-seconds of the clairvoyant bound; pods, calm, at cap: pod-seconds as a multiple of it; above: share
of the time with a job older than the target; excess: integral of that age above it; late: share of attempts that waited
longer."""


def of_delay(played: Sequence[Played], delay: str) -> list[Table]:
    """Lay out all matches of one start delay."""
    found = [_workloads(played, delay), _means(played, delay)]
    if any(e.policy in OTHERS for e in played[0].entries):
        found[1:1] = [_others(played, delay, tuning) for tuning in played[0].tunings]
    return found


def _by_workload(played: Sequence[Played]) -> dict[str, list[Played]]:
    found: dict[str, list[Played]] = {}
    for p in played:
        found.setdefault(p.match.workload, []).append(p)
    return found


def _workloads(played: Sequence[Played], delay: str) -> Table:
    head = ["workload", "kind", "bound", "pods", "calm", "at cap", "above %", "excess s²", "late %", "p99 wait s"]
    head += ["at cap: above %", "late %", "peak", "actions", "calm", "killed", "wake-up s"]
    table = Table(f"The planner, start delay {delay}", head)
    for name, runs in _by_workload(played).items():
        ours = [p.of(OURS) for p in runs]
        cap = [p.of(AT_CAP) for p in runs]
        table.rows.append(
            [
                name,
                runs[0].kind,
                f"{fmean(p.bound for p in runs):,.0f}",
                *(f"{cost_ratio(runs, policy):.2f}" for policy in (OURS, CALM, AT_CAP)),
                _percent(ours, "violation"),
                f"{fmean(s.excess for s in ours):,.0f}",
                _percent(ours, "late"),
                f"{fmean(s.p99_wait for s in ours):.1f}",
                _percent(cap, "violation"),
                _percent(cap, "late"),
                f"{max(s.peak for s in ours)}",
                f"{fmean(s.actions for s in ours):.0f}",
                f"{fmean(p.of(CALM).actions for p in runs):.0f}",
                f"{sum(s.killed for s in ours)}",
                _wake_ups(ours),
            ]
        )
    table.notes = [NOTE]
    return table


def _percent(scores: Sequence[Score], what: str) -> str:
    return f"{100 * fmean(getattr(s, what) for s in scores):.2f}"


def _wake_ups(scores: Sequence[Score]) -> str:
    waits = [wait for s in scores for wait in s.wake_ups]
    return f"{max(waits):.1f}" if waits else ""


def _others(played: Sequence[Played], delay: str, tuning: Tuning) -> Table:
    how = HOW[tuning].replace("its", "their")
    table = Table(f"Pod-seconds to the bound / % of time above target, start delay {delay}, others {how}", [])
    table.head = ["workload", OURS, *OTHERS]
    for name, runs in _by_workload(played).items():
        columns = [(OURS, Tuning.DEFAULT), *((policy, tuning) for policy in OTHERS)]
        cells = []
        for policy, how_tuned in columns:
            scores = [p.of(policy, how_tuned) for p in runs]
            cells.append(f"{cost_ratio(runs, policy, how_tuned):.2f} / {_percent(scores, 'violation')}")
        table.rows.append([name, *cells])
    return table


def _means(played: Sequence[Played], delay: str) -> Table:
    head = ["policy", "pods to bound", "above %", "late %", "worst above %", "times the planner's score"]
    head += ["seconds above cap", "killed", "actions", "p99 wait s"]
    table = Table(f"Geometric means over all workloads but sparse, start delay {delay}", head)
    filled = dense(played) or played
    entries = dict.fromkeys((e.policy, e.tuning) for e in filled[0].entries)
    for policy, tuning in entries:
        scores = [p.of(policy, tuning) for p in filled]
        table.rows.append(
            [
                policy + ("" if tuning is Tuning.DEFAULT else f", {tuning}"),
                f"{cost_ratio(filled, policy, tuning):.2f}",
                _percent(scores, "violation"),
                _percent(scores, "late"),
                f"{100 * max(s.violation for s in scores):.2f}",
                f"{times_better(filled, policy, tuning):.2f}",
                f"{sum(s.above_cap for s in scores):,.0f}",
                f"{sum(s.killed for s in scores)}",
                f"{fmean(s.actions for s in scores):.0f}",
                f"{fmean(s.p99_wait for s in scores):.1f}",
            ]
        )
    least = geometric(FLOOR * p.bound / p.of(OURS).cost for p in filled)
    table.notes = [f"The bound at a violation of 0: {least:.2f} times the planner's score, which nobody can be below."]
    if Tuning.EACH in filled[0].tunings:
        best = geometric(
            min(e.score.cost for e in p.entries if e.tuning is Tuning.EACH) / p.of(OURS).cost for p in filled
        )
        table.notes.append(f"Whichever other is best on each workload, tuned on it: {best:.2f} times.")
    return table


def verdict(played: Sequence[Played], delay: str) -> Table:
    """Lay out the figures to reach."""
    table = Table(f"Figures to reach, start delay {delay}", ["figure", "wanted", "measured", "reached"])
    table.rows = [[f.what, f.wanted, f.measured, "yes" if f.reached else "NO"] for f in figures(played)]
    return table


def document(played: Sequence[Played]) -> list[dict[str, Any]]:
    """Return every single run for JSON."""
    return [
        {
            "workload": p.match.workload,
            "kind": p.kind,
            "seed": p.match.seed,
            "start_delay": asdict(p.match.delay),
            "jobs": p.jobs,
            "bound": round(p.bound, 1),
            "runs": [
                {"policy": e.policy, "tuning": e.tuning, "values": e.values, "cost": round(e.score.cost, 3)}
                | {name: _short(value) for name, value in asdict(e.score).items()}
                for e in p.entries
            ],
        }
        for p in played
    ]


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 5)
    if isinstance(value, tuple):
        return [_short(each) for each in value]
    return value
