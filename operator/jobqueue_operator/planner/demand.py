"""How many workers a class needs: `replicas.min`, and one for a class at zero that has work. No law that scales yet."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jobqueue_operator.planner.memory import ClassMemory
from jobqueue_operator.planner.plan import Decision, Reason

if TYPE_CHECKING:
    from jobqueue_operator.planner.facts import Facts
    from jobqueue_operator.planner.plan import Pool
    from jobqueue_operator.planner.wanted import PoolSpec


def decide(wanted: PoolSpec, facts: Facts, previous: Pool | None, *, now: float) -> tuple[Decision, ClassMemory]:
    """Return how many workers this class gets, and what to remember."""
    spec = wanted.spec
    least = spec.replicas.min
    memory = previous.memory if previous is not None else ClassMemory()
    if not facts.visible:
        held = previous.decision.replicas if previous is not None else least
        return Decision(held, Reason.NOT_VISIBLE, f"the queue cannot be read: holding {held}"), memory
    seen = facts.classes.get(wanted.key)
    if spec.paused or (seen is not None and seen.paused):
        # Pausing stops claims in the queue. Workers stay, so that resuming needs no start.
        return Decision(least, Reason.PAUSED, f"paused: no claims, {least} kept"), memory
    work = seen.ready + seen.in_flight if seen is not None else 0
    if work:
        memory = replace(memory, busy_at=now)
    if least > 0:
        return Decision(least, Reason.MINIMUM_REPLICAS, f"replicas.min {least}"), memory
    if work:
        return Decision(1, Reason.DEMAND, f"replicas.min 0, {work} jobs: 1"), memory
    idle_after = spec.replicas.idle_after.total_seconds()
    if memory.busy_at is not None and now - memory.busy_at < idle_after:
        message = f"idle for {now - memory.busy_at:.0f}s of {idle_after:.0f}s"
        return Decision(1, Reason.IDLE_AFTER, message), memory
    return Decision(0, Reason.IDLE, "replicas.min 0, no jobs"), memory
