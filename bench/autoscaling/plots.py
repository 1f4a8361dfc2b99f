"""What the runs look like: each workload over time, and all policies by what they cost and how late they were."""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from bench.autoscaling.catalogue import AT_CAP, FAMILIES, OTHERS, OURS
from bench.autoscaling.contest import Match, Tuning
from bench.autoscaling.run import Sample, run
from bench.autoscaling.verdict import cost_ratio, dense, times_better
from bench.autoscaling.workloads import workload

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bench.autoscaling.catalogue import Values
    from bench.autoscaling.contest import Played
    from bench.autoscaling.load import Floats

EVERY = 10.0
"""Seconds between two samples."""
COLUMNS = 4
OUR_COLOUR, OTHER_COLOUR, WORK_COLOUR = "#0b5fa5", "#d9730d", "#c9ced6"
MARKS = {Tuning.DEFAULT: "o", Tuning.ONCE: "s", Tuning.EACH: "D"}


@dataclass(frozen=True, slots=True)
class Trace:
    """One workload as the planner and the best other ran it."""

    workload: str
    target: float
    offered: Floats
    """Pods that the arriving work would fill, in steps of `EVERY`."""
    ours: list[Sample]
    other: list[Sample]


def draw(played: Sequence[Played], folder: Path, processes: int) -> list[Path]:
    """Draw all runs of one or several start delays; return the files."""
    mpl.use("Agg")
    mpl.rcParams.update({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False})
    folder.mkdir(parents=True, exist_ok=True)
    delays = list(dict.fromkeys(p.match.delay for p in played))
    by_delay = [[p for p in played if p.match.delay == delay] for delay in delays]
    files = []
    for group in by_delay:
        files.append(folder / f"autoscaling-{group[0].match.delay.typical:g}s.png")
        _save(_over_time(group, processes), files[-1])
    files.append(folder / "autoscaling-cost.png")
    _save(_cost(by_delay), files[-1])
    return files


def _save(figure: Figure, file: Path) -> None:
    figure.savefig(file, dpi=80)
    plt.close(figure)


def best_other(played: Sequence[Played]) -> tuple[str, Tuning]:
    """Return who of the others is nearest to the planner, tuned as far as this run tuned."""
    tuning = played[0].tunings[-1]
    filled = dense(played) or played
    return min(OTHERS, key=lambda policy: times_better(filled, policy, tuning)), tuning


def _over_time(played: Sequence[Played], processes: int) -> Figure:
    policy, tuning = best_other(played)
    firsts = list({p.match.workload: p for p in reversed(played)}.values())[::-1]
    asked = [(p.match, policy, _values(p, policy, tuning)) for p in firsts]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        traces = pool.starmap(_trace, asked)
    rows = -(-len(traces) // COLUMNS)
    figure = plt.figure(figsize=(15, 2.9 * rows + 0.7), layout="constrained")
    cells = figure.add_gridspec(rows, COLUMNS)
    for k, trace in enumerate(traces):
        cell = cells[k // COLUMNS, k % COLUMNS].subgridspec(2, 1, height_ratios=(1, 1.4), hspace=0.05)
        age = figure.add_subplot(cell[0])
        _age(age, trace)
        _pods(figure.add_subplot(cell[1], sharex=age), trace)
        if k % COLUMNS == 0:
            age.set_ylabel("oldest age / T")
    delay = played[0].match.delay.typical
    handles = [
        Line2D([], [], color=OUR_COLOUR, label="planner"),
        Line2D([], [], color=OTHER_COLOUR, label=f"{policy}, {tuning}"),
        Rectangle((0, 0), 1, 1, color=WORK_COLOUR, label="arriving work, in pods"),
    ]
    title = f"Oldest age and pods that exist, start delay {delay:g} s, seed {firsts[0].match.seed}"
    figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False, fontsize=10, title=title)
    return figure


def _values(played: Played, policy: str, tuning: Tuning) -> Values:
    return next(e.values for e in played.entries if e.policy == policy and e.tuning is tuning)


def _trace(match: Match, policy: str, values: Values) -> Trace:
    load = workload(match.workload, match.seed)
    _, ours = run(load, match.delay, FAMILIES[OURS].make(load, {}), every=EVERY)
    _, other = run(load, match.delay, FAMILIES[policy].make(load, values), every=EVERY)
    edges = np.arange(0, load.horizon + EVERY, EVERY)
    work, _ = np.histogram(load.due, edges, weights=load.service)
    return Trace(load.name, load.target, work / EVERY / load.slots, ours, other)


def _age(axes: Axes, trace: Trace) -> None:
    axes.set_title(trace.workload, loc="left", fontsize=9, fontweight="bold", pad=2)
    axes.axhline(1, color="#b00020", linewidth=0.7, linestyle="--")
    for samples, colour in ((trace.other, OTHER_COLOUR), (trace.ours, OUR_COLOUR)):
        ages = [s.oldest_age / trace.target for s in samples]
        axes.plot([s.at / 60 for s in samples], ages, color=colour, linewidth=0.9)
    axes.set_ylim(0, max(1.3, *(s.oldest_age / trace.target for s in (*trace.ours, *trace.other))))
    axes.tick_params(labelbottom=False)


def _pods(axes: Axes, trace: Trace) -> None:
    times = np.arange(len(trace.offered)) * EVERY / 60
    most = max(s.pods for s in (*trace.ours, *trace.other))
    axes.fill_between(times, np.minimum(trace.offered, 1.3 * most), step="post", color=WORK_COLOUR, linewidth=0)
    for samples, colour in ((trace.other, OTHER_COLOUR), (trace.ours, OUR_COLOUR)):
        axes.step([s.at / 60 for s in samples], [s.pods for s in samples], where="post", color=colour, linewidth=0.9)
    axes.set_ylim(0, 1.15 * max(most, 1))
    axes.set_xlim(0, times[-1] + EVERY / 60)
    axes.set_xlabel("minutes", labelpad=0)
    axes.set_ylabel("pods")


def _cost(by_delay: Sequence[Sequence[Played]]) -> Figure:
    figure, panels = plt.subplots(
        1, len(by_delay), figsize=(6.5 * len(by_delay), 5), layout="constrained", squeeze=False
    )
    colours = {policy: mpl.colormaps["tab10"](k) for k, policy in enumerate(OTHERS, start=1)}
    colours |= {OURS: mpl.colors.to_rgba(OUR_COLOUR), AT_CAP: (0.0, 0.0, 0.0, 1.0)}
    for axes, played in zip(panels[0], by_delay, strict=True):
        filled = dense(played) or played
        names: dict[tuple[float, float], list[str]] = {}
        for entry in filled[0].entries:
            if entry.policy not in colours:
                continue
            cost = cost_ratio(filled, entry.policy, entry.tuning)
            late = 100 * fmean(p.of(entry.policy, entry.tuning).violation for p in filled)
            ours = entry.policy == OURS
            mark, size = ("*", 160) if ours else (MARKS[entry.tuning], 36)
            axes.scatter(cost, late, s=size, marker=mark, color=colours[entry.policy], zorder=3)
            if entry.tuning is Tuning.DEFAULT:
                names.setdefault((round(cost, 2), round(late, 1)), []).append(entry.policy)
        for place, policies in names.items():
            axes.annotate(" = ".join(policies), place, (5, 5), textcoords="offset points", color=colours[policies[0]])
        axes.axvline(1, color="grey", linewidth=0.7, linestyle="--")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks([1, 1.5, 2, 3, 5], ["1", "1.5", "2", "3", "5"])
        axes.set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
        axes.minorticks_off()
        axes.set_xlabel("pod-seconds to the clairvoyant bound, geometric mean")
        axes.set_ylabel("% of the time above target, mean")
        axes.set_title(f"start delay {played[0].match.delay.typical:g} s", loc="left", fontweight="bold")
    handles = [
        Line2D([], [], marker=mark, color="grey", linestyle="", label=str(tuning)) for tuning, mark in MARKS.items()
    ]
    panels[0][-1].legend(handles=handles, frameon=False, title="others' parameters")
    return figure
