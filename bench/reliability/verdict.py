"""What a campaign found: figures with what each must be, a table for people, JSON for machines."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.reliability.stage import Stage

RESULTS = Path(__file__).resolve().parents[1] / "results"

_UNHURT = {"done", "retry", "released", "lost"}


@dataclass(frozen=True)
class Figure:
    """One number and whether it is what it must be; `must` is empty where it only informs."""

    name: str
    value: float
    must: str = ""
    holds: bool = True


@dataclass
class Verdict:
    """The figures of one campaign."""

    campaign: str
    seed: int
    figures: list[Figure] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether every figure is what it must be."""
        return all(figure.holds for figure in self.figures)

    def __getitem__(self, name: str) -> float:
        """Return a figure's value by its name."""
        return next(figure.value for figure in self.figures if figure.name == name)

    def tell(self, name: str, value: float) -> None:
        """Add a figure that only informs."""
        self.figures.append(Figure(name, value))

    def zero(self, name: str, value: float) -> None:
        """Add a figure that must be 0."""
        self.figures.append(Figure(name, value, "0", value == 0))

    def happened(self, name: str, value: float, least: float = 1) -> None:
        """Add the counter of a fault: a campaign without its faults proves nothing."""
        self.figures.append(Figure(name, value, f"≥ {least:g}", value >= least))

    def at_most(self, name: str, value: float, most: float) -> None:
        """Add a figure with an upper bound."""
        self.figures.append(Figure(name, value, f"≤ {most:g}", value <= most))

    def table(self) -> str:
        """Lay the figures out, readable as they are and as Markdown."""
        rows = [
            (f.name, f"{f.value:g}" if f.value < 1e6 else f"{f.value:.0f}", f.must, "" if f.holds else "FAILS")
            for f in self.figures
        ]
        head = (f"{self.campaign}, seed {self.seed}", "figure", "must be", "")
        widths = [max(len(row[at]) for row in [head, *rows]) for at in range(4)]
        lines = [
            "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
            for row in [head, *rows]
        ]
        lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
        return "\n".join(lines)

    def write(self) -> Path:
        """Keep the figures as JSON, with the circumstances."""
        RESULTS.mkdir(parents=True, exist_ok=True)
        name = self.campaign if self.campaign.startswith("scaling-") else f"reliability-{self.campaign}"
        path = RESULTS / f"{name}.json"
        facts: dict[str, Any] = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "processors": os.cpu_count(),
            "load": os.getloadavg()[0],
            "holds": self.holds,
            **asdict(self),
        }
        path.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
        return path


def judge(stage: Stage, verdict: Verdict, *, with_effects: bool = True) -> None:
    """Add what must hold after every campaign: nothing lost, nothing twice, every attempt accounted for."""
    value = stage.value
    done = value("SELECT count(*) FROM jobqueue.jobs WHERE status = 'done'")
    verdict.tell("jobs", stage.jobs)
    verdict.zero("lost jobs", stage.jobs - value("SELECT count(*) FROM jobqueue.jobs"))
    verdict.zero("jobs in another status than done", stage.jobs - done)
    if with_effects:
        verdict.zero("duplicate effects", value("SELECT count(*) - count(DISTINCT job_id) FROM public.effect"))
        verdict.zero("missing effects", stage.jobs - value("SELECT count(DISTINCT job_id) FROM public.effect"))
    over = value("SELECT count(*) FROM jobqueue.jobs WHERE attempts > max_attempts")
    verdict.zero("jobs with more attempts than allowed", over)
    verdict.tell("most attempts of a job", value("SELECT max(attempts) FROM jobqueue.jobs"))
    verdict.zero(
        "attempts that ended unexpectedly",
        value("SELECT count(*) FROM jobqueue.attempts WHERE NOT outcome = ANY(%s)", sorted(_UNHURT)),
    )
    spent = (
        "SELECT count(*) FROM jobqueue.jobs j WHERE j.attempts <> (SELECT count(*) FROM jobqueue.attempts a"
        " WHERE a.job_id = j.id AND a.outcome IN ('done', 'retry', 'lost'))"
    )
    verdict.zero("jobs whose attempts differ from their history", value(spent))
    verdict.tell("redelivered (lost attempts)", lost(stage))
    verdict.tell("released attempts", value("SELECT count(*) FROM jobqueue.attempts WHERE outcome = 'released'"))


def lost(stage: Stage) -> int:
    """Count the attempts whose worker vanished."""
    return int(stage.value("SELECT count(*) FROM jobqueue.attempts WHERE outcome = 'lost'"))
