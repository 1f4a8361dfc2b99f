"""The other policies tuned by one who has seen the workloads: best in hindsight, on each and over all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bench.autoscaling.catalogue import FAMILIES
from bench.autoscaling.contest import Entry, Tuning
from bench.autoscaling.verdict import dense, geometric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.autoscaling.contest import Played


def tuned(played: Sequence[Played]) -> list[Played]:
    """Add entries for the best settings to matches that have one start delay; those without a grid stay as they are."""
    judged = dense(played) or played
    once = {}
    for policy, scores in played[0].tried.items():
        once[policy] = _least([_mean_cost(judged, policy, k) for k in range(len(scores))])
    return [replace(p, entries=(*p.entries, *_entries(p, once)), tried={}) for p in played]


def _least(costs: Sequence[float]) -> int:
    return min(range(len(costs)), key=costs.__getitem__)


def _mean_cost(played: Sequence[Played], policy: str, setting: int) -> float:
    return geometric(p.tried[policy][setting].cost for p in played)


def _entries(played: Played, once: dict[str, int]) -> list[Entry]:
    found = []
    for policy, scores in played.tried.items():
        settings = list(FAMILIES[policy].grid())
        each = _least([score.cost for score in scores])
        found += [
            Entry(policy, tuning, settings[k], scores[k])
            for tuning, k in ((Tuning.ONCE, once[policy]), (Tuning.EACH, each))
        ]
    return found
