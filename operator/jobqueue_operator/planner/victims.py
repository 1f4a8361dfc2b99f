"""Who goes first: whoever loses the least by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobqueue_operator.planner.facts import Phase, WorkerFacts
from jobqueue_operator.planner.plan import Reason, Victim

if TYPE_CHECKING:
    from collections.abc import Iterable


def _cost(worker: WorkerFacts) -> tuple[bool, int, float, str]:
    return (worker.phase is Phase.READY, worker.busy, worker.age, worker.name)


def rank(workers: Iterable[WorkerFacts]) -> list[WorkerFacts]:
    """Return the workers, cheapest to lose first: not ready, then idle, then the fewest jobs, then the youngest."""
    return sorted((w for w in workers if w.phase is not Phase.DRAINING), key=_cost)


def victim(worker: WorkerFacts, reason: Reason | None = None) -> Victim:
    """Name a worker as a victim, with the reason for its rank unless another one is given."""
    if worker.phase is not Phase.READY:
        own, message = Reason.NOT_READY_FIRST, f"{worker.name} is not ready"
    elif worker.busy == 0:
        own, message = Reason.IDLE_FIRST, f"{worker.name} is idle"
    else:
        own, message = Reason.LEAST_ELAPSED, f"{worker.name} holds the fewest jobs ({worker.busy})"
    return Victim(worker.name, reason or own, message)


def surplus(workers: Iterable[WorkerFacts], replicas: int, revision: str) -> tuple[Victim, ...]:
    """Return who is to be drained so that `replicas` stay, old revisions first. Who drains already does not count."""
    ranked = sorted(rank(workers), key=lambda w: w.revision == revision)
    return tuple(victim(w) for w in ranked[: max(len(ranked) - replicas, 0)])
