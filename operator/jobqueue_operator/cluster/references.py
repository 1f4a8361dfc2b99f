"""What only all manifests together can say of one: its downstreams, its minimums beside those of others. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobqueue_operator.manifest import allowed, reserve

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobqueue_operator.cluster.store import Key
    from jobqueue_operator.resources import ClassSpec, DownstreamCapacity, JobQueue


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a manifest is not carried out: a stable reason, and field, reason and remedy for people."""

    reason: str
    message: str


@dataclass(slots=True)
class Reservations:
    """What JobQueues reserve of their downstreams, one after the other."""

    downstreams: Mapping[Key, DownstreamCapacity]
    _taken: dict[Key, list[tuple[str, int]]] = field(default_factory=dict)

    def take(self, queue: JobQueue) -> list[Trouble]:
        """Reserve what a JobQueue needs beside those that came before it, or nothing; then return why."""
        own: dict[Key, list[tuple[str, int]]] = {}
        troubles = []
        for index, spec in enumerate(queue.spec.classes):
            troubles += _of_class(queue, spec, f"spec.classes[{index}].capacity", self.downstreams, own)
        for ref, parts in own.items():
            troubles += _minimums(ref, parts, self._taken.get(ref, []), self.downstreams[ref])
        if not troubles:
            for ref, parts in own.items():
                self._taken.setdefault(ref, []).extend(parts)
        return troubles


def _of_class(
    queue: JobQueue,
    spec: ClassSpec,
    where: str,
    downstreams: Mapping[Key, DownstreamCapacity],
    own: dict[Key, list[tuple[str, int]]],
) -> list[Trouble]:
    capacity = spec.capacity
    if capacity is None:
        return []
    ref = capacity.ref.namespace or queue.metadata.namespace, capacity.ref.name
    downstream = downstreams.get(ref)
    if downstream is None:
        text = (
            f"{where}.ref: there is no valid DownstreamCapacity {ref[0]}/{ref[1]}; create it, or correct the reference"
        )
        return [Trouble("CapacityMissing", text)]
    refused = [Trouble("CapacityNotAllowed", str(problem)) for problem in allowed(queue, spec, capacity, downstream)]
    limit, one = _limit(downstream), capacity.charge(1)
    if limit is not None and one > limit:
        text = f"{where}: one worker with one job takes {one} units, above the {limit} of {ref[0]}/{ref[1]}; lower them"
        refused.append(Trouble("UnitsAboveLimit", text))
    own.setdefault(ref, []).append((f"{queue.metadata.name}/{spec.name}", reserve(spec, capacity)))
    return refused


def _minimums(
    ref: Key, own: Sequence[tuple[str, int]], others: Sequence[tuple[str, int]], downstream: DownstreamCapacity
) -> list[Trouble]:
    limit, parts = _limit(downstream), [*others, *own]
    total = sum(units for _, units in parts)
    if limit is None or total <= limit or not sum(units for _, units in own):
        return []
    text = " + ".join(f"{name} {units}" for name, units in parts if units)
    return [
        Trouble(
            "MinimumsAboveLimit",
            f"the classes on DownstreamCapacity {ref[0]}/{ref[1]} reserve {text} = {total} units, above {limit}; "
            "lower minUnits or replicas.min, or raise spec.units",
        )
    ]


def _limit(downstream: DownstreamCapacity) -> int | None:
    spec = downstream.spec
    return spec.units - spec.reserve if spec.units is not None else None
