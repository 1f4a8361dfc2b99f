"""From an old revision to the wanted one: one out, one in, and never a step while the last one is not finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobqueue_operator.planner.facts import Phase, WorkerFacts
from jobqueue_operator.planner.plan import Reason, RolloutStep
from jobqueue_operator.planner.victims import rank, victim

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jobqueue_operator.planner.plan import Kept


def step(workers: Sequence[WorkerFacts], revision: str, replicas: int, kept: Kept | None = None) -> RolloutStep | None:
    """Return the next step for one class's workers, or None when all that are to stay have the revision.

    A new worker takes the place of an old one only when that is gone: workers that drain still use the downstream.
    Platforms that can start it earlier do so where the pool says `surge`. `kept` are not replaced; where they have all
    the places, a new worker comes beside them.
    """
    workers = _staying(workers)
    old = [w for w in rank(workers) if w.revision != revision]
    if not old:
        return None
    count = f"{len(old)} of {replicas} still old"
    failing = [w for w in workers if w.revision == revision and w.failing]
    if failing:
        message = f"rollout stalled: {failing[0].name} does not come up; the old workers stay ({count})"
        return RolloutStep(None, Reason.STALLED, message)
    unsettled = [
        w for w in workers if w.phase is Phase.DRAINING or (w.revision == revision and w.phase is not Phase.READY)
    ]
    if unsettled:
        who = unsettled[0]
        return RolloutStep(
            None,
            Reason.WAITING_FOR_READY,
            f"rolling out: waiting for {who.name} ({who.phase.lower()}; {count})",
        )
    beside = kept.workers if kept is not None and kept.beside else ()
    if len(workers) - len(beside) < replicas:
        return RolloutStep(None, Reason.WAITING_FOR_READY, f"rolling out: waiting for a new worker ({count})")
    free = [w for w in old if kept is None or w.name not in kept.workers]
    if kept is not None and not free:
        return RolloutStep(None, kept.reason, kept.message)
    chosen = victim(free[0], Reason.ROLLING)
    return RolloutStep(chosen, Reason.ROLLING, f"rolling out: replacing {chosen.worker} ({count})")


def is_under_way(workers: Iterable[WorkerFacts], revision: str) -> bool:
    """Whether a worker is to be replaced that has an old revision and is not on its way out."""
    return any(w.revision != revision and w.phase is not Phase.DRAINING for w in _staying(workers))


def _staying(workers: Iterable[WorkerFacts]) -> list[WorkerFacts]:
    return [w for w in workers if w.phase is not Phase.RETIRED]  # scale-in takes care of the others
