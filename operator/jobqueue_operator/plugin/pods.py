"""Pods of workers: where in its life each is, and why. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobqueue_operator.planner.facts import Phase
from jobqueue_operator.platforms.last_words import last_words
from jobqueue_operator.plugin import conditions
from jobqueue_operator.plugin.conditions import moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from jobqueue_operator.plugin.conditions import Condition

REVISION_LABEL = "jobqueue.dev/revision"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""On those pods alone that the operator has chosen to go."""
UNSCHEDULED = "Unscheduled"
ENDED = "Ended"
COMES = frozenset({"", "ContainerCreating", "PodInitializing"})
"""What a container waits for on its way up, when all is well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One worker's pod."""

    name: str
    phase: str
    """A Phase, or UNSCHEDULED, or ENDED."""
    revision: str
    restarts: int
    age: float
    """Seconds."""
    node: str
    message: str
    """Why it is not ready, and how long it may still take to end."""
    stuck: bool
    """Whether it will not become ready by waiting alone."""


def read(found: Mapping[str, Any], now: datetime) -> Pod:
    """Read a pod."""
    metadata, status = found["metadata"], found.get("status") or {}
    containers = status.get("containerStatuses") or []
    phase, message, stuck = (
        _leaving(metadata, status, now) or _coming(status, containers) or _working(metadata, status, containers)
    )
    created = moment(metadata.get("creationTimestamp"))
    return Pod(
        name=metadata["name"],
        phase=phase,
        revision=label(found, REVISION_LABEL),
        restarts=sum(each.get("restartCount") or 0 for each in containers),
        age=(now - created).total_seconds() if created is not None else 0.0,
        node=(found.get("spec") or {}).get("nodeName") or "",
        message=message,
        stuck=stuck,
    )


def label(found: Mapping[str, Any], key: str) -> str:
    """Return a label of an object, empty when it has none of that key."""
    return str((found["metadata"].get("labels") or {}).get(key, ""))


# Each returns where a pod is, why, and whether waiting alone will not do; None when it is not there.


def _leaving(metadata: Mapping[str, Any], status: Mapping[str, Any], now: datetime) -> tuple[str, str, bool] | None:
    ends = moment(metadata.get("deletionTimestamp"))
    if ends is None:
        ended = status.get("phase") in {"Failed", "Succeeded"}
        return (ENDED, _joined(status.get("reason"), status.get("message")), False) if ended else None
    left = (ends - now).total_seconds()
    if left < 0:
        return Phase.DRAINING, "its grace is over, and nobody has ended it: is its node there?", True
    return Phase.DRAINING, f"{left:.0f}s of {metadata.get('deletionGracePeriodSeconds', '?')}s left", False


def _coming(status: Mapping[str, Any], containers: Iterable[Mapping[str, Any]]) -> tuple[str, str, bool] | None:
    scheduled = _condition(status, "PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return UNSCHEDULED, _joined(scheduled.reason, scheduled.message), True
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = str(waiting.get("reason") or "")
        if reason not in COMES:
            return Phase.BACKOFF, _joined(reason, _died(container) or waiting.get("message")), True
    return None


def _working(
    metadata: Mapping[str, Any], status: Mapping[str, Any], containers: Iterable[Mapping[str, Any]]
) -> tuple[str, str, bool]:
    ready = _condition(status, "Ready")
    if ready is not None and ready.status == "Unknown":
        return Phase.STARTING, _joined("its node does not answer", ready.message), True
    if DELETION_COST in (metadata.get("annotations") or {}):
        return Phase.RETIRED, "finishes what it has, and goes", False
    if ready is not None and ready.status == "True":
        return Phase.READY, "", False
    return Phase.STARTING, next(filter(None, map(_died, containers)), ""), False


def _condition(status: Mapping[str, Any], type_: str) -> Condition | None:
    return next((c for c in conditions.read(status) if c.type == type_), None)


def _died(container: Mapping[str, Any]) -> str:
    ended = (container.get("lastState") or {}).get("terminated") or {}
    if not ended:
        return ""
    said = _joined(ended.get("reason"), last_words(ended.get("message") or ""))
    return f"it ended last with status {ended.get('exitCode', '?')}" + (f" ({said})" if said else "")


def _joined(*parts: str | None) -> str:
    return ": ".join(part for part in parts if part)
