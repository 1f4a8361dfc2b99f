"""What a manifest asks for, in the planner's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobqueue_operator import asked
from jobqueue_operator.planner.wanted import Wanted
from jobqueue_operator.queues.queue import HERE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobqueue_operator.workload import Workload


def wanted(workload: Workload, revisions: Mapping[str, str]) -> Wanted:
    """Return the pools and capacities of a workload on one database.

    `revisions` says, per class, what its workers should be made from. A downstream is named as in the queue.
    """
    pools = tuple(
        asked.pool(queue, spec, key=spec.name, revision=revisions[spec.name], database=HERE)
        for queue in workload.queues
        for spec in queue.spec.classes
    )
    return Wanted(pools=pools, capacities=tuple(asked.capacity(d) for d in workload.downstreams))
