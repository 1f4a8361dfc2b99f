"""What keeps a class from having the workers, or its jobs from being worked on, that they should. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobqueue_operator.planner.facts import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobqueue_operator.plugin.reading import Capacity, Class, Queue

SUMMED_UP = frozenset({"Ready", "CapacityAvailable"})
"""Types of conditions that say together what is said of each class."""
PODS_NAMED = 3
"""Pods with the same trouble whose names are said."""


@dataclass(frozen=True, slots=True)
class Hold:
    """One thing that holds back."""

    what: str
    message: str


def of_queue(queue: Queue) -> list[Hold]:
    """Return what holds all classes of a JobQueue back."""
    return list(_of_queue(queue))


def of_class(queue: Queue, found: Class) -> list[Hold]:
    """Return what holds one class back, beside what its decision's own reason says."""
    return list(_of_class(queue, found))


def _of_queue(queue: Queue) -> Iterator[Hold]:
    if queue.observed_generation is None:
        yield Hold("operator", "it has not looked at this JobQueue yet: is one running, and for this namespace?")
    elif queue.generation is not None and queue.observed_generation < queue.generation:
        yield Hold(
            "operator",
            f"the spec is of generation {queue.generation}, and it has looked at {queue.observed_generation}: "
            "is it running?",
        )
    for condition in queue.conditions:
        if condition.trouble and condition.type not in SUMMED_UP:
            yield Hold(condition.type, ": ".join(filter(None, (condition.reason, condition.message))))


def _of_class(queue: Queue, found: Class) -> Iterator[Hold]:
    if not found.in_spec:
        yield Hold("removed", "it is no longer in the spec; its workers go when its jobs are worked off")
    elif not found.in_status and queue.observed_generation is not None:
        yield Hold("operator", "it has not looked at this class yet")
    if found.paused:
        command = f"kubectl jobqueue resume {queue.name} {found.name} -n {queue.namespace}"
        yield Hold("paused", f"claims are stopped; `{command}` lets it go on")
    capacity = next((c for c in queue.capacities if f"{c.namespace}/{c.name}" == found.capacity), None)
    if capacity is not None:
        yield from _of_downstream(queue, found, capacity)
    going = sum(pod.phase in {Phase.DRAINING, Phase.RETIRED} for pod in found.pods)
    if found.replicas is not None and found.desired_replicas is not None and found.replicas < found.desired_replicas:
        asked = f", {found.deployment.replicas} are asked for" if found.deployment is not None else ""
        waits = f"; {going} that go still hold what they have" if going else ""
        yield Hold("workers", f"{found.replicas} of {found.desired_replicas} decided are there{asked}{waits}")
    if found.deployment is not None and found.deployment.trouble:
        yield Hold(f"Deployment {found.deployment.name}", found.deployment.trouble)
    yield from _of_pods(found)


def _of_downstream(queue: Queue, found: Class, capacity: Capacity) -> Iterator[Hold]:
    share = capacity.of(f"{queue.namespace}/{queue.name}", found.name)
    if share is None or share.asked is None or share.allocated is None or share.allocated >= share.asked:
        return
    others = f"; held back by {', '.join(share.held_back_by)}" if share.held_back_by else "; its limit is short"
    limit = f" of {capacity.limit}" if capacity.limit is not None else ""
    yield Hold(f"downstream {capacity.name}", f"asks {share.asked} units, gets {share.allocated}{limit}{others}")


def _of_pods(found: Class) -> Iterator[Hold]:
    stuck: dict[tuple[str, str], list[str]] = {}
    for pod in found.pods:
        if pod.stuck:
            stuck.setdefault((pod.phase, pod.message), []).append(pod.name)
    for (phase, message), names in stuck.items():
        more = f" and {len(names) - PODS_NAMED} more" if len(names) > PODS_NAMED else ""
        yield Hold("pods", f"{', '.join(names[:PODS_NAMED])}{more}: {phase}: {message}")
    old = [p.name for p in found.pods if found.deployment is not None and p.revision != found.deployment.revision]
    if old:
        yield Hold("rollout", f"{len(old)} of {len(found.pods)} pods are of an older revision")
