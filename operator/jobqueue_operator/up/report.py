"""What `up` shows: rows for each tick, and a line for each thing that happens. Where to is the reporter's affair."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import shorten
from typing import TYPE_CHECKING, Literal, Protocol

from jobqueue_operator.planner.facts import Facts, Phase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobqueue_operator.planner.plan import Plan
    from jobqueue_operator.resources import ClassSpec

SAID_LENGTH = 120
"""Characters of a worker's last words in a row; in full they are said once, when it happens."""

Level = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One class at one tick. Ages in seconds; None where the queue could not be read."""

    class_: str
    target_age: float
    oldest_age: float | None
    ready: int | None
    scheduled: int | None
    in_flight: int | None
    done: int | None
    dead: int | None
    workers_ready: int
    workers: int
    workers_wanted: int
    reason: str
    why: str

    @property
    def late(self) -> bool:
        """Whether users are affected."""
        return self.oldest_age is not None and self.oldest_age > self.target_age


class Reporter(Protocol):
    """Shows what `up` does."""

    def say(self, level: Level, message: str, **details: object) -> None:
        """Show something that happened."""

    def tick(self, rows: Sequence[Row]) -> None:
        """Show the state."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def rows(
    classes: Sequence[ClassSpec], facts: Facts, plan: Plan, done: Mapping[str, int] | None, failing: Mapping[str, str]
) -> list[Row]:
    """Return one row a class, in the order of the manifest.

    `done` counts the jobs that are done, None when it is not known. `failing` names classes whose workers do not come
    up, and what they said.
    """
    found = []
    for spec in classes:
        pool = plan.pool(spec.name)
        seen = facts.classes.get(spec.name)
        workers = [w for w in facts.workers if w.class_ == spec.name]
        found.append(
            Row(
                class_=spec.name,
                target_age=spec.target.oldest_message_age.total_seconds(),
                oldest_age=round(seen.oldest_age, 3) if seen else None,
                ready=seen.ready if seen else None,
                scheduled=seen.scheduled if seen else None,
                in_flight=seen.in_flight if seen else None,
                done=done.get(spec.name, 0) if done is not None else None,
                dead=seen.dead if seen else None,
                workers_ready=sum(1 for w in workers if w.phase is Phase.READY),
                workers=len(workers),
                workers_wanted=pool.decision.replicas if pool else 0,
                reason=pool.decision.reason if pool else "Draining",
                why="; ".join([pool.why if pool else "draining", *_failing(failing.get(spec.name))]),
            )
        )
    return found


def _failing(said: str | None) -> list[str]:
    return [] if said is None else [f"workers do not come up: {shorten(said, SAID_LENGTH)}"]
