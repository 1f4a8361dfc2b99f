"""Who goes first, and who comes back: whoever loses the least by it, and whoever has the most to lose.

Scale-in has two steps. A ready worker is retired: the queue fences it, so that it claims nothing more and what it holds
can be trusted. Once it holds nothing it is stopped. Until then it can be taken back, which costs no start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobqueue_operator.planner.facts import Phase, WorkerFacts
from jobqueue_operator.planner.plan import Reason, Victim

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jobqueue_operator.planner.plan import Kept

LEAVING = frozenset({Phase.RETIRED, Phase.DRAINING})


@dataclass(frozen=True, slots=True)
class Moves:
    """What is to be done to the workers that exist."""

    retire: tuple[Victim, ...] = ()
    take_back: tuple[str, ...] = ()
    stop: tuple[Victim, ...] = ()


def _cost(worker: WorkerFacts) -> tuple[bool, bool, float, int, float, str]:
    return (worker.phase is Phase.READY, worker.busy > 0, worker.elapsed, worker.busy, worker.age, worker.name)


def rank(workers: Iterable[WorkerFacts]) -> list[WorkerFacts]:
    """Return those not being stopped, cheapest to lose first: not ready, idle, least elapsed work, youngest."""
    return sorted((w for w in workers if w.phase is not Phase.DRAINING), key=_cost)


def victim(worker: WorkerFacts, reason: Reason | None = None) -> Victim:
    """Name a worker as a victim, with the reason for its rank unless another one is given."""
    if worker.phase not in {Phase.READY, Phase.RETIRED}:
        own, message = Reason.NOT_READY_FIRST, f"{worker.name} is not ready"
    elif worker.busy == 0:
        own, message = Reason.IDLE_FIRST, f"{worker.name} is idle"
    else:
        own = Reason.LEAST_ELAPSED
        message = f"{worker.name} has the least work to lose ({worker.busy} jobs, {worker.elapsed:.1f}s)"
    return Victim(worker.name, reason or own, message)


def moves(
    workers: Sequence[WorkerFacts], replicas: int, revision: str, kept: Kept | None = None, *, surge: bool = False
) -> Moves:
    """Return who is to be retired, taken back and stopped so that `replicas` stay, and one more with a `surge`.

    Old revisions go first, and while there are any nobody else does: a rollout counts on the new ones, and an old one
    works until they do. While a rollout keeps old ones, nobody is too many. Only workers of the wanted revision are
    taken back, those with the most work first.
    """
    beside = kept.workers if kept is not None and kept.beside else ()
    stay = [w for w in workers if w.phase not in LEAVING and w.name not in beside]
    retired = [w for w in workers if w.phase is Phase.RETIRED]
    missing = replicas - len(stay)
    back: tuple[str, ...] = ()
    if missing > 0:
        again = [w for w in reversed(rank(retired)) if w.revision == revision]
        back = tuple(w.name for w in again[:missing])
    old = [w for w in stay if w.revision != revision]
    coming = sum(w.revision == revision and w.phase is not Phase.READY and w.admitted for w in stay) if old else 0
    surplus = rank(old or stay)[: max(-missing - max(coming, int(surge)), 0)] if kept is None else []
    # One that is not ready was never admitted or does not come up: it holds nothing that retiring would protect.
    fenced = tuple(victim(w) for w in surplus if w.phase is Phase.READY)
    unready = tuple(victim(w) for w in surplus if w.phase is not Phase.READY)
    empty = tuple(victim(w) for w in retired if w.busy == 0 and w.name not in back)
    return Moves(retire=fenced, take_back=back, stop=(*unready, *empty))
