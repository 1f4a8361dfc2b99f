"""What `up` shows: rows for each tick, and a line for each thing that happens. Where to is the reporter's affair."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from textwrap import shorten
from typing import TYPE_CHECKING, Protocol

from jobqueue_operator.planner.facts import Facts, Phase
from jobqueue_operator.queues.saying import Says

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobqueue_operator.planner.plan import Plan, Pool
    from jobqueue_operator.planner.wanted import Wanted

SAID_LENGTH = 120
"""Characters of a worker's last words in a row; in full they are said once, when it happens."""


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
    """All that exist, retired and draining ones included."""
    workers_wanted: int
    """The decision's replicas: those beside the retired and draining ones."""
    workers_retired: int = 0
    workers_draining: int = 0
    reason: str
    why: str
    remarks: tuple[str, ...] = ()
    """Conditions that hold beside the decision, with their numbers."""
    terms: Mapping[str, float] | None = None
    """The law's inputs and terms, where it was asked; docs/scaling.md names them."""

    @property
    def late(self) -> bool:
        """Whether users are affected."""
        return self.oldest_age is not None and self.oldest_age > self.target_age


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One class's part of a downstream, in units."""

    class_: str
    asked: int
    allocated: int
    held_back_by: tuple[str, ...]

    @property
    def held_back(self) -> bool:
        """Whether it gets less than it asks for."""
        return self.allocated < self.asked


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRow:
    """One downstream at one tick, in units. None where the queue could not be read."""

    downstream: str
    limit: int
    in_use: int | None
    reason: str
    why: str
    claims: tuple[Claim, ...] = ()


class Reporter(Says, Protocol):
    """Shows what `up` does."""

    def tick(self, rows: Sequence[Row], capacities: Sequence[CapacityRow] = ()) -> None:
        """Show the state."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def rows(
    wanted: Wanted, facts: Facts, plan: Plan, done: Mapping[str, int] | None, failing: Mapping[str, str]
) -> list[Row]:
    """Return one row a class, in the order of the manifest.

    `done` counts the jobs that are done, None when it is not known. `failing` names classes whose workers do not come
    up, and what they said.
    """
    found = []
    for asked in wanted.pools:
        pool = plan.pool(asked.key)
        seen = facts.classes.get(asked.key)
        phases = [w.phase for w in facts.workers if w.class_ == asked.key]
        found.append(
            Row(
                class_=asked.key,
                target_age=asked.spec.target.oldest_message_age.total_seconds(),
                oldest_age=round(seen.oldest_age, 3) if seen else None,
                ready=seen.ready if seen else None,
                scheduled=seen.scheduled if seen else None,
                in_flight=seen.in_flight if seen else None,
                done=done.get(asked.key, 0) if done is not None else None,
                dead=seen.dead if seen else None,
                workers_ready=phases.count(Phase.READY),
                workers=len(phases),
                workers_wanted=pool.decision.replicas if pool else 0,
                workers_retired=phases.count(Phase.RETIRED),
                workers_draining=phases.count(Phase.DRAINING),
                reason=pool.decision.reason if pool else "Draining",
                why="; ".join([pool.why if pool else "draining", *_failing(failing.get(asked.key))]),
                remarks=tuple(f"{r.condition}: {r.message}" for r in pool.decision.remarks) if pool else (),
                terms=_terms(pool),
            )
        )
    return found


def capacity_rows(plan: Plan) -> list[CapacityRow]:
    """Return one row a downstream: what is in use, and who gets less than it asks for."""
    return [
        CapacityRow(
            downstream=allocation.downstream,
            limit=allocation.limit,
            in_use=allocation.in_use,
            reason=allocation.reason,
            why=allocation.message,
            claims=tuple(
                Claim(class_=s.pool, asked=s.asked, allocated=s.allocated, held_back_by=s.held_back_by)
                for s in allocation.shares
            ),
        )
        for allocation in plan.downstreams
    ]


def _terms(pool: Pool | None) -> dict[str, float] | None:
    if pool is None or pool.decision.terms is None:
        return None
    return {name: round(value, 4) for name, value in asdict(pool.decision.terms).items()}


def _failing(said: str | None) -> list[str]:
    return [] if said is None else [f"workers do not come up: {shorten(said, SAID_LENGTH)}"]
