"""What the API server has of a JobQueue, as facts. Pure: objects as they come (JSON) in, frozen values out.

Status and pods are written by others, and may be older or newer than this: whatever is absent is None or empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobqueue_operator.plugin import conditions, pods
from jobqueue_operator.plugin.pods import REVISION_LABEL, label
from jobqueue_operator.resources.durations import parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from jobqueue_operator.plugin.conditions import Condition
    from jobqueue_operator.plugin.pods import Pod

CLASS_LABEL = "jobqueue.dev/class"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What belongs to a JobQueue, as the API server has it."""

    deployments: Sequence[Mapping[str, Any]] = ()
    pods: Sequence[Mapping[str, Any]] = ()
    capacities: Sequence[Mapping[str, Any]] = ()
    unread: Sequence[str] = ()
    """What could not be read, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One class's Deployment."""

    name: str
    replicas: int
    """Pods that it is told to have."""
    ready: int
    revision: str
    trouble: str
    """What keeps it from making pods, such as a quota."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one class has of a downstream, in units."""

    job_queue: str
    """NAMESPACE/NAME."""
    class_: str
    asked: int | None
    allocated: int | None
    held_back_by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """A DownstreamCapacity."""

    namespace: str
    name: str
    units: int | None
    limit: int | None
    in_use: int | None
    shares: tuple[Share, ...]
    conditions: tuple[Condition, ...]

    def of(self, job_queue: str, class_: str) -> Share | None:
        """Return one class's share."""
        return next((s for s in self.shares if (s.job_queue, s.class_) == (job_queue, class_)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Class:
    """One class: what is asked for, what was decided, and what is there."""

    name: str
    in_spec: bool
    """False once it was taken out, while its jobs are worked off."""
    in_status: bool
    """False until the operator has looked at it."""
    paused: bool
    target: float | None
    """Seconds."""
    replicas: int | None
    desired_replicas: int | None
    ready_jobs: int | None
    in_flight_jobs: int | None
    scheduled_jobs: int | None
    dead_jobs: int | None
    oldest_message_age: float | None
    """Seconds."""
    reason: str
    message: str
    capacity: str | None
    """NAMESPACE/NAME of the DownstreamCapacity that it leans on."""
    deployment: Deployment | None
    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """One JobQueue, with all that belongs to it."""

    namespace: str
    name: str
    generation: int | None
    observed_generation: int | None
    """The generation of the spec that the operator has seen; None: none yet."""
    image: str
    reason: str
    replicas: int | None
    ready_jobs: int | None
    in_flight_jobs: int | None
    dead_jobs: int | None
    oldest_message_age: float | None
    conditions: tuple[Condition, ...]
    classes: tuple[Class, ...]
    capacities: tuple[Capacity, ...]
    unread: tuple[str, ...]
    """What could not be read, and why."""

    def condition(self, type_: str) -> Condition | None:
        """Return one condition."""
        return next((c for c in self.conditions if c.type == type_), None)


def references(queue: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the DownstreamCapacities that a JobQueue's classes refer to, each once: (namespace, name)."""
    found = (reference(spec, queue["metadata"]["namespace"]) for spec in _specs(queue))
    return list(dict.fromkeys(each for each in found if each is not None))


def job_queue(queue: Mapping[str, Any], parts: Parts, *, now: datetime) -> Queue:
    """Bring together what was read of a JobQueue."""
    metadata, status = queue["metadata"], queue.get("status") or {}
    by_class = {label(d, CLASS_LABEL): _deployment(d) for d in parts.deployments}
    workers: dict[str, list[Pod]] = {}
    for pod in parts.pods:
        workers.setdefault(label(pod, CLASS_LABEL), []).append(pods.read(pod, now))
    specs = {spec["name"]: spec for spec in _specs(queue)}
    statuses = {each["name"]: each for each in status.get("classes") or []}
    return Queue(
        namespace=metadata["namespace"],
        name=metadata["name"],
        generation=metadata.get("generation"),
        observed_generation=status.get("observedGeneration"),
        image=(queue.get("spec") or {}).get("image") or "",
        reason=status.get("reason") or "",
        replicas=status.get("replicas"),
        ready_jobs=status.get("readyJobs"),
        in_flight_jobs=status.get("inFlightJobs"),
        dead_jobs=status.get("deadJobs"),
        oldest_message_age=_seconds(status.get("oldestMessageAge")),
        conditions=conditions.read(status),
        classes=tuple(
            _class(
                name,
                specs.get(name),
                statuses.get(name),
                namespace=metadata["namespace"],
                deployment=by_class.get(name),
                pods=tuple(sorted(workers.get(name, ()), key=lambda pod: -pod.age)),
            )
            for name in dict.fromkeys([*specs, *statuses, *filter(None, by_class), *filter(None, workers)])
        ),
        capacities=tuple(capacity(each) for each in parts.capacities),
        unread=tuple(parts.unread),
    )


def _class(
    name: str,
    spec: Mapping[str, Any] | None,
    status: Mapping[str, Any] | None,
    *,
    namespace: str,
    deployment: Deployment | None,
    pods: tuple[Pod, ...],
) -> Class:
    asked, seen = spec or {}, status or {}
    leaning = reference(asked, namespace)
    return Class(
        name=name,
        in_spec=spec is not None,
        in_status=status is not None,
        paused=bool(asked.get("paused", False)),
        target=_seconds((asked.get("target") or {}).get("oldestMessageAge")),
        replicas=seen.get("replicas"),
        desired_replicas=seen.get("desiredReplicas"),
        ready_jobs=seen.get("readyJobs"),
        in_flight_jobs=seen.get("inFlightJobs"),
        scheduled_jobs=seen.get("scheduledJobs"),
        dead_jobs=seen.get("deadJobs"),
        oldest_message_age=_seconds(seen.get("oldestMessageAge")),
        reason=seen.get("reason") or "",
        message=seen.get("message") or "",
        capacity=None if leaning is None else "/".join(leaning),
        deployment=deployment,
        pods=pods,
    )


def _specs(queue: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list((queue.get("spec") or {}).get("classes") or [])


def reference(spec: Mapping[str, Any], namespace: str) -> tuple[str, str] | None:
    """Return the DownstreamCapacity that a class refers to: (namespace, name)."""
    ref = (spec.get("capacity") or {}).get("ref") or {}
    return (ref.get("namespace") or namespace, ref["name"]) if ref.get("name") else None


def capacity(found: Mapping[str, Any]) -> Capacity:
    """Read a DownstreamCapacity."""
    metadata, spec, status = found["metadata"], found.get("spec") or {}, found.get("status") or {}
    return Capacity(
        namespace=metadata["namespace"],
        name=metadata["name"],
        units=status.get("units", spec.get("units")),
        limit=status.get("limit"),
        in_use=status.get("inUse"),
        shares=tuple(
            Share(
                job_queue=each.get("jobQueue") or "",
                class_=each.get("class") or "",
                asked=each.get("asked"),
                allocated=each.get("allocated"),
                held_back_by=tuple(map(str, each.get("heldBackBy") or ())),
            )
            for each in status.get("allocations") or []
        ),
        conditions=conditions.read(status),
    )


def _deployment(found: Mapping[str, Any]) -> Deployment:
    spec, status = found.get("spec") or {}, found.get("status") or {}
    template = (spec.get("template") or {}).get("metadata") or {}
    failing = next(
        (c for c in conditions.read(status) if (c.type, c.status) == ("ReplicaFailure", "True")),
        None,
    )
    return Deployment(
        name=found["metadata"]["name"],
        replicas=spec.get("replicas") or 0,
        ready=status.get("readyReplicas") or 0,
        revision=(template.get("labels") or {}).get(REVISION_LABEL, ""),
        trouble=f"{failing.reason}: {failing.message}" if failing is not None else "",
    )


def _seconds(text: str | None) -> float | None:
    try:
        return parse(text).total_seconds() if text else None
    except ValueError:
        return None
