"""How many pods a Deployment is to have, so that whoever goes is who was chosen. Pure.

A Deployment is told a number, never a name: which pod goes is its ReplicaSet's choice. So the number falls only when
those that were chosen, fenced and found empty come first in the ReplicaSet's own order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from jobqueue_operator.platforms.kubernetes.pods import Pod

FIRST, NEXT = -(2**31), -(2**31) + 1
"""Deletion costs: of a pod that goes before the fenced ones that still work, and of one that is fenced. A pod without
one has 0; these are the least that there are, so that no cost of anybody else's comes before them."""


@dataclass(frozen=True, slots=True)
class Step:
    """What to tell a Deployment now, and its pods before."""

    replicas: int
    costs: Mapping[str, int | None] = field(default_factory=dict)
    """Deletion costs to write, by pod; None takes a pod's cost away."""


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
    going = {pod.name for pod in stay if pod.name in stop}
    fenced = {pod.name for pod in stay if pod.name in retired} - going
    costs = dict(_costs(stay, going, fenced))
    target = wanted + len(fenced)
    if target >= current:
        return Step(target, costs)
    if len(going) < len(stay) and any(pod.revision != revision for pod in stay):
        # In the middle of a rollout two ReplicaSets share the number.
        return Step(current, costs)
    return Step(max(target, current - _safe(stay, going, costs, current)), costs)


def _costs(stay: Iterable[Pod], going: Collection[str], fenced: Collection[str]) -> Iterable[tuple[str, int | None]]:
    """Yield the costs that change."""
    for pod in stay:
        if pod.name in going:
            # Beside fenced pods that still work it must come before them; a cost that it has is never raised.
            cost = FIRST if fenced else min(pod.cost, NEXT)
        elif pod.name in fenced:
            cost = NEXT
        else:
            if pod.cost in {FIRST, NEXT}:
                yield pod.name, None
            continue
        if pod.cost != cost:
            yield pod.name, cost


def _safe(stay: Sequence[Pod], going: Collection[str], costs: Mapping[str, int | None], current: int) -> int:
    """Return by how many the number can fall so that no other pod goes. Pods that do not exist yet go first.

    A cost that is only being written is seen or not: of a pod that is to go the higher counts, of others the lower.
    Pods that are more than `current` are being deleted already.
    """

    def cost(pod: Pod) -> int:
        both = pod.cost, costs.get(pod.name, pod.cost) or 0
        return max(both) if pod.name in going else min(both)

    others = [rank(pod, cost(pod)) for pod in stay if pod.name not in going]
    first = min(others, default=None)
    before = sum(first is None or rank(pod, cost(pod)) < first for pod in stay if pod.name in going)
    return max(before + current - len(stay), 0)


def rank(pod: Pod, cost: int) -> tuple[bool, bool, bool, int]:
    """Return what a ReplicaSet sorts pods by, the least being deleted first.

    Not assigned to a node, not running, not ready, cheaper to delete: the first four of Kubernetes'
    `ActivePodsWithRanks`. What follows there (neighbours on a node, readiness and age in powers of two, uids) cannot
    be foretold, so pods that agree in these are taken for equal.
    """
    return pod.scheduled, pod.running, pod.ready, cost
