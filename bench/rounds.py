"""Contestants take turns, several rounds long, so that the machine's moods meet all of them alike."""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True)
class Contestant:
    """`run` measures once and returns figures by name; `prepare` runs before it, unmeasured."""

    name: str
    run: Callable[[], Mapping[str, float]]
    prepare: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Series:
    """The figures of one contestant, one a round."""

    name: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.values)


@dataclass(frozen=True)
class Contest:
    """One figure of every contestant. `unit` is a rate (jobs/s) or a duration (ms)."""

    title: str
    unit: str
    series: tuple[Series, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def ratio(self, name: str, to: str) -> tuple[float, float, float]:
        """Return median, lowest and highest of the ratios within each round."""
        by = {s.name: s.values for s in self.series}
        ratios = [a / b for a, b in zip(by[name], by[to], strict=True) if b]
        return (statistics.median(ratios), min(ratios), max(ratios)) if ratios else (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Figure:
    """What a run's figure of this `name` is called in the tables, and its unit."""

    name: str
    title: str
    unit: str


def alternate(
    figures: Sequence[Figure], contestants: list[Contestant], rounds: int, facts: Mapping[str, Any] | None = None
) -> list[Contest]:
    """Run every contestant once a round, in turns that start with another one each round; a contest for each figure."""
    values: dict[str, list[Mapping[str, float]]] = {c.name: [] for c in contestants}
    for number in range(rounds):
        shift = number % len(contestants)
        for contestant in contestants[shift:] + contestants[:shift]:
            contestant.prepare()
            found = contestant.run()
            values[contestant.name].append(found)
            shown = "  ".join(f"{found[f.name]:,.2f} {f.unit}" for f in figures if f.name in found)
            print(f"  round {number + 1}/{rounds}  {contestant.name:<44} {shown}", file=sys.stderr, flush=True)
    return [
        Contest(
            figure.title,
            figure.unit,
            tuple(
                Series(name, tuple(found[figure.name] for found in runs))
                for name, runs in values.items()
                if all(figure.name in found for found in runs)
            ),
            facts or {},
        )
        for figure in figures
    ]
