"""How many workers a class needs: `replicas.min`, and one for a class at zero that has work. No law that scales yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobqueue_operator.planner.plan import Decision, Reason

if TYPE_CHECKING:
    from jobqueue_operator.planner.facts import Facts
    from jobqueue_operator.resources import ClassSpec


def decide(spec: ClassSpec, facts: Facts, previous: Decision | None, *, now: float) -> Decision:
    """Return how many workers this class gets.

    `previous` is the last tick's decision, `now` the time of this one in seconds on any steady clock. What cannot be
    seen is no reason to change anything: a blind tick repeats the previous decision.
    """
    least = spec.replicas.min
    busy_at = previous.busy_at if previous is not None else None
    if not facts.visible:
        held = previous.replicas if previous is not None else least
        return Decision(held, Reason.NOT_VISIBLE, f"the queue cannot be read: holding {held}", busy_at)
    seen = facts.classes.get(spec.name)
    if spec.paused or (seen is not None and seen.paused):
        # Pausing stops claims in the queue. Workers stay, so that resuming needs no start.
        return Decision(least, Reason.PAUSED, f"paused: no claims, {least} kept", busy_at)
    work = seen.ready + seen.in_flight if seen is not None else 0
    if work:
        busy_at = now
    if least > 0:
        return Decision(least, Reason.MINIMUM_REPLICAS, f"replicas.min {least}", busy_at)
    if work:
        return Decision(1, Reason.JOBS_WAITING, f"replicas.min 0, {work} jobs: 1", busy_at)
    idle_after = spec.replicas.idle_after.total_seconds()
    if busy_at is not None and now - busy_at < idle_after:
        return Decision(1, Reason.JOBS_WAITING, f"idle for {now - busy_at:.0f}s of {idle_after:.0f}s", busy_at)
    return Decision(0, Reason.IDLE, "replicas.min 0, no jobs", busy_at)
