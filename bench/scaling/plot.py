"""One picture a campaign: age against target, workers, units against the limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from pathlib import Path

    from bench.scaling.theatre import Theatre

COLORS = ("#1f77b4", "#d95f02", "#1b9e77", "#7570b3")


def draw(theatre: Theatre, title: str, path: Path) -> None:
    """Draw what a campaign saw, tick by tick."""
    moments = theatre.moments
    at = [m.at for m in moments]
    names = list(moments[0].classes)
    downstreams = list(moments[0].downstreams)
    figure, axes = plt.subplots(2 + bool(downstreams), 1, sharex=True, figsize=(9, 5 + 2 * bool(downstreams)))
    for name, color in zip(names, COLORS, strict=False):
        rows = [m.classes[name] for m in moments]
        axes[0].plot(at, [row["oldest_age"] for row in rows], color=color, label=f"{name}: oldest")
        axes[1].step(at, [row["workers"] for row in rows], where="post", color=color, label=f"{name}: exist")
        ready = [row["workers_ready"] for row in rows]
        axes[1].fill_between(at, ready, step="post", alpha=0.3, color=color, label=f"{name}: ready")
        leaving = [row["workers_retired"] + row["workers_draining"] for row in rows]
        axes[1].step(at, leaving, where="post", color=color, linestyle=":", label=f"{name}: retired or draining")
    target = moments[0].classes[names[0]]["target_age"]
    axes[0].axhline(target, color="black", linestyle="--", linewidth=1, label="target")
    axes[0].set_ylabel("seconds")
    axes[1].set_ylabel("workers")
    for name, color in zip(downstreams, COLORS, strict=False):
        rows = [m.downstreams.get(name, {}) for m in moments]
        axes[2].step(at, [row.get("in_use") for row in rows], where="post", color=color, label=f"{name}: in flight")
        axes[2].step(at, [row.get("limit") for row in rows], where="post", color="black", label=f"{name}: limit")
        axes[2].set_ylabel("units")
    axes[0].set_title(title, loc="left", fontsize="small")
    axes[-1].set_xlabel("seconds")
    for panel in axes:
        panel.set_ylim(bottom=0)
        panel.legend(loc="upper right", fontsize="small", framealpha=0.8)
        panel.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    plt.close(figure)
