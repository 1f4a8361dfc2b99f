"""All policies on the same workloads, on both processors, with every setting that the oracle may choose from."""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from bench.autoscaling.catalogue import AT_CAP, CALM, FAMILIES, OTHERS, OURS
from bench.autoscaling.clairvoyant import bound
from bench.autoscaling.run import run
from bench.autoscaling.score import Score, score
from bench.autoscaling.workloads import workload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench.autoscaling.catalogue import Values
    from bench.autoscaling.load import Kind, StartDelay

SHORTEST_OF = 1_000
"""Pods whose start delays are looked through for the bound's shortest; no run starts as many."""


@dataclass(frozen=True, slots=True)
class Match:
    """A workload drawn with a seed, and a start delay: one row."""

    workload: str
    seed: int
    delay: StartDelay
    policies: tuple[str, ...]
    tune: bool
    """Whether the others are run with every value that the oracle may choose."""


class Tuning(StrEnum):
    """Where a policy's parameters come from."""

    DEFAULT = "defaults"
    ONCE = "one setting"
    """The one that is best over all workloads of a start delay."""
    EACH = "each workload"
    """The best one on each single workload, in hindsight."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One policy's run."""

    policy: str
    tuning: Tuning
    values: Values
    score: Score


@dataclass(frozen=True, slots=True)
class Played:
    """All runs of one match, and the bound on their pod-seconds."""

    match: Match
    kind: Kind
    jobs: int
    bound: float
    entries: tuple[Entry, ...]
    tried: Mapping[str, Sequence[Score]] = field(default_factory=dict)
    """For each policy that an oracle tunes, the scores of its whole grid, in the grid's order."""

    def of(self, policy: str, tuning: Tuning = Tuning.DEFAULT) -> Score:
        """Return the score of a policy. Raises KeyError when it was not run like that."""
        for entry in self.entries:
            if entry.policy == policy and entry.tuning is tuning:
                return entry.score
        raise KeyError(policy, tuning)

    @property
    def tunings(self) -> list[Tuning]:
        """How the others were run."""
        return list(dict.fromkeys(e.tuning for e in self.entries))


def matches(
    names: Sequence[str], seeds: Sequence[int], delays: Sequence[StartDelay], *, tune: bool, only_ours: bool = False
) -> list[Match]:
    """Every workload with every seed and start delay."""
    policies = (OURS, CALM, AT_CAP) if only_ours else tuple(FAMILIES)
    return [Match(name, seed, delay, policies, tune) for name in names for seed in seeds for delay in delays]


def play(match: Match) -> Played:
    """Run every policy of a match."""
    load = workload(match.workload, match.seed)
    entries = []

    def scored(policy: str, values: Values) -> Score:
        engine, _ = run(load, match.delay, FAMILIES[policy].make(load, values))
        return score(engine)

    tried = {}
    for policy in match.policies:
        values = FAMILIES[policy].default
        entries.append(Entry(policy, Tuning.DEFAULT, values, scored(policy, values)))
        if match.tune and policy in OTHERS:
            tried[policy] = [scored(policy, values) for values in FAMILIES[policy].grid()]
    delay = match.delay
    shortest = min(delay.of(pod) for pod in range(SHORTEST_OF)) if delay.sigma else delay.typical
    return Played(match, load.kind, len(load.due), bound(load, shortest), tuple(entries), tried)


def play_all(wanted: Sequence[Match], processes: int, told: Callable[[Played], None]) -> list[Played]:
    """Run all matches, calling `told` with each as it ends; the result is in the order of the matches."""
    found: dict[Match, Played] = {}
    # Not forked: a fork of a process that has threads (numpy's) may never end.
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for played in pool.imap_unordered(play, wanted):
            found[played.match] = played
            told(played)
    return [found[match] for match in wanted]
