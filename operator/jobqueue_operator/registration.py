"""A class and a downstream as the queue's own settings: what must hold even while nobody operates it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobqueue_operator.resources import ClassSpec, DownstreamCapacity, JobQueue
    from jobqueue_operator.resources.job_class import CapacityRef


def class_settings(queue: JobQueue, spec: ClassSpec) -> dict[str, Any]:
    """Return the settings of `set_class` for one class: times in seconds, null where there is no limit."""
    capacity, backoff = spec.capacity, spec.retry.backoff
    return {
        "lease_seconds": spec.lease.duration.total_seconds(),
        "timeout_seconds": spec.timeout.total_seconds(),
        "max_attempts": spec.retry.max_attempts,
        "backoff_initial_seconds": backoff.initial.total_seconds(),
        "backoff_factor": backoff.factor,
        "backoff_max_seconds": backoff.max.total_seconds(),
        "concurrency": spec.concurrency,
        "fair_tenants": spec.tenancy.fair,
        "tenant_limit": spec.tenancy.limit_per_tenant,
        "key_limit": spec.key_limit,
        "downstream": downstream_name(queue, capacity.ref) if capacity is not None else None,
        "units_per_job": capacity.units_per_job if capacity is not None else 1,
        "units_per_pod": capacity.units_per_pod if capacity is not None else 0,
        "target_age_seconds": spec.target.oldest_message_age.total_seconds(),
        "done_retention_seconds": queue.spec.retention.done.total_seconds(),
        "dead_retention_seconds": queue.spec.retention.dead.total_seconds(),
        "paused": spec.paused,
    }


def downstream_name(queue: JobQueue, ref: CapacityRef) -> str:
    """Return a DownstreamCapacity's name in the queue's database, as a class of this JobQueue refers to it."""
    return _qualified(ref.namespace or queue.metadata.namespace, ref.name)


def own_name(downstream: DownstreamCapacity) -> str:
    """Return a DownstreamCapacity's name in the queue's database."""
    return _qualified(downstream.metadata.namespace, downstream.metadata.name)


def first_limit(downstream: DownstreamCapacity, connections: int | None) -> int:
    """Return the limit that claims hold to until a plan says otherwise: all units but the reserve.

    `connections` is what the database's server grants to ordinary users.
    """
    units = downstream.spec.units if downstream.spec.units is not None else connections or 0
    return max(units - downstream.spec.reserve, 0)


def _qualified(namespace: str, name: str) -> str:
    # JobQueues of several namespaces may share a database: without the namespace two limits would be one.
    return name if namespace == "default" else f"{namespace}/{name}"
