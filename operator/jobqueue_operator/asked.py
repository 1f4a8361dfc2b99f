"""What manifests ask for, in the planner's words: the same on a laptop and in a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobqueue_operator.planner.wanted import CapacitySpec, PoolSpec
from jobqueue_operator.registration import downstream_name, own_name

if TYPE_CHECKING:
    from jobqueue_operator.resources import ClassSpec, DownstreamCapacity, JobQueue


def pool(queue: JobQueue, spec: ClassSpec, *, key: str, revision: str, database: str, surges: bool = False) -> PoolSpec:
    """Return the pool of one class. A downstream is named as in the queue's database."""
    return PoolSpec(
        key=key,
        spec=spec,
        revision=revision,
        namespace=queue.metadata.namespace,
        queue=queue.metadata.name,
        database=database,
        downstream=downstream_name(queue, spec.capacity.ref) if spec.capacity is not None else None,
        surges=surges,
    )


def capacity(downstream: DownstreamCapacity) -> CapacitySpec:
    """Return a downstream's capacity, named as in the queue's database."""
    return CapacitySpec(name=own_name(downstream), spec=downstream.spec, namespace=downstream.metadata.namespace)
