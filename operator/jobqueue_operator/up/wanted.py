"""What a manifest asks for, in the planner's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobqueue_operator.planner.wanted import CapacitySpec, PoolSpec, Wanted
from jobqueue_operator.queues.queue import HERE
from jobqueue_operator.registration import downstream_name, own_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobqueue_operator.workload import Workload


def wanted(workload: Workload, revisions: Mapping[str, str]) -> Wanted:
    """Return the pools and capacities of a workload on one database.

    `revisions` says, per class, what its workers should be made from. A downstream is named as in the queue.
    """
    pools = tuple(
        PoolSpec(
            key=spec.name,
            spec=spec,
            revision=revisions[spec.name],
            namespace=queue.metadata.namespace,
            queue=queue.metadata.name,
            database=HERE,
            downstream=downstream_name(queue, spec.capacity.ref) if spec.capacity is not None else None,
        )
        for queue in workload.queues
        for spec in queue.spec.classes
    )
    capacities = tuple(
        CapacitySpec(name=own_name(d), spec=d.spec, namespace=d.metadata.namespace) for d in workload.downstreams
    )
    return Wanted(pools=pools, capacities=capacities)
