"""How many pods a Deployment is to have, so that whoever goes is who was chosen. Pure.

A Deployment is told a number, never a name: which pod goes is its ReplicaSet's choice. So the number falls only when
those that were chosen, fenced and found empty come first in the ReplicaSet's own order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from jobqueue_operator.platforms.kubernetes.pods import Pod

COST = -1_000
"""The deletion cost of a pod that is to go; pods without one have 0."""


@dataclass(frozen=True, slots=True)
class Step:
    """What to tell a Deployment now, and its pods before."""

    replicas: int
    mark: tuple[str, ...] = ()
    """Pods that get `COST`."""
    unmark: tuple[str, ...] = ()
    """Pods that have a cost and are to stay."""


def step(
    pods: Sequence[Pod],
    *,
    current: int,
    wanted: int,
    retired: Collection[str],
    stop: Collection[str],
    revision: str,
) -> Step:
    """Return the next step from `current` to `wanted` pods beside the retired ones.

    `pods` are those of the Deployment; `retired` names those that are fenced in the queue, `stop` those that may end
    now: fenced and empty, or never ready. `revision` is that of the template.
    """
    stay = [pod for pod in pods if not pod.leaving]
    going = [pod for pod in stay if pod.name in stop]
    fenced = [pod for pod in stay if pod.name in retired and pod.name not in stop]
    doomed = {pod.name for pod in (*going, *fenced)}
    mark = tuple(sorted(pod.name for pod in stay if pod.name in doomed and pod.cost != COST))
    unmark = tuple(sorted(pod.name for pod in stay if pod.name not in doomed and pod.cost == COST))
    target = wanted + len(fenced)
    if target >= current:
        return Step(target, mark, unmark)
    if any(pod.revision != revision for pod in stay) or mark:
        # In the middle of a rollout two ReplicaSets share the number; and a mark that was just made is not read yet.
        return Step(current, mark, unmark)
    return Step(current - _safe(stay, {pod.name for pod in going}, current, current - target), mark, unmark)


def _safe(stay: Sequence[Pod], going: Collection[str], current: int, fewer: int) -> int:
    """Return by how many the number can fall so that no other pod goes; those that do not exist yet go first."""
    missing = max(current - len(stay), 0)
    safe = min(missing, fewer)
    for pod in order(stay):
        if safe >= fewer or pod.name not in going:
            break
        safe += 1
    return safe


def order(pods: Sequence[Pod]) -> list[Pod]:
    """Return pods in the order in which a ReplicaSet deletes them.

    Not assigned to a node, not running, not ready, cheaper to delete, restarted more often, younger; as in Kubernetes'
    `ActivePodsWithRanks`, save for its ranks by node, which only tell apart pods that agree in all of the above.
    """
    return sorted(pods, key=lambda p: (p.scheduled, p.running, p.ready, p.cost, -p.restarts, -p.created_at, p.name))
