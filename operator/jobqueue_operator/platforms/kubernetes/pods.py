"""Pods as the planner's workers. Pure: what the API server said, and the time, in; facts out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from jobqueue_operator.planner.facts import Phase, WorkerFacts
from jobqueue_operator.planner.workload.names import REVISION
from jobqueue_operator.planner.workload.pod import CONTAINER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jobqueue_operator.platforms.kubernetes.api import Object

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
FAILING = frozenset({
    "CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName",
    "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
})  # fmt: skip
"""Reasons for which a container waits that do not go away by themselves, or only after a long time."""
ENDED = frozenset({"Succeeded", "Failed"})
"""Phases of a pod that will never run again: its ReplicaSet has replaced it already."""
SAID_MOST = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One worker pod."""

    name: str
    uid: str
    revision: str
    created_at: float
    """Seconds since the epoch."""
    started_at: float
    """When its container was started last; when it was created while it never was."""
    deleted_at: float | None = None
    """When its deletion was asked for plus its grace; None while nobody asked."""
    scheduled: bool = False
    running: bool = False
    ready: bool = False
    cost: int = 0
    restarts: int = 0
    failing: str = ""
    """Why it does not come up; empty when it may."""

    @property
    def leaving(self) -> bool:
        """Whether its end was asked for."""
        return self.deleted_at is not None


def read(things: Iterable[Object]) -> list[Pod]:
    """Return those that can still run, or run down."""
    return [
        _read(thing)
        for thing in things
        if (thing.get("status") or {}).get("phase") not in ENDED or "deletionTimestamp" in thing["metadata"]
    ]


def worker(pod: Pod, class_: str, now: float) -> WorkerFacts:
    """Return a pod as a worker. One that runs is `Starting` here: only the queue knows that it is ready."""
    phase = Phase.DRAINING if pod.leaving else Phase.BACKOFF if pod.failing else Phase.STARTING
    return WorkerFacts(
        name=pod.name,
        class_=class_,
        phase=phase,
        revision=pod.revision,
        # The API server's times are whole seconds, cut off: what registered in that second is not older than the pod.
        age=max(now - (pod.started_at if pod.restarts else pod.created_at), 0.0),
        restarts=pod.restarts,
        last_error=pod.failing,
    )


def lost(pod: Pod, now: float, patience: float) -> bool:
    """Whether its end was asked for so long ago that its node is lost, and with it whatever it did."""
    return pod.deleted_at is not None and now > pod.deleted_at + patience


def _read(thing: Object) -> Pod:
    metadata, status = thing["metadata"], thing.get("status") or {}
    created = moment(metadata["creationTimestamp"])
    mine: Mapping[str, Any] = next((c for c in status.get("containerStatuses") or () if c.get("name") == CONTAINER), {})
    state = mine.get("state") or {}
    running = state.get("running") or {}
    waiting = _waiting(status)
    try:
        cost = int((metadata.get("annotations") or {}).get(DELETION_COST, "0"))
    except ValueError:
        cost = 0
    return Pod(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        revision=(metadata.get("labels") or {}).get(REVISION, ""),
        created_at=created,
        started_at=moment(running["startedAt"]) if running.get("startedAt") else created,
        deleted_at=moment(metadata["deletionTimestamp"]) if metadata.get("deletionTimestamp") else None,
        scheduled=bool((thing.get("spec") or {}).get("nodeName")),
        running=status.get("phase") == "Running",
        ready=any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ()),
        cost=cost,
        restarts=int(mine.get("restartCount") or 0),
        failing=_why(waiting, mine),
    )


def _waiting(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a container waits for that will not come by itself."""
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in FAILING:
            return dict(waiting)
    return {}


def _why(waiting: Mapping[str, Any], mine: Mapping[str, Any]) -> str:
    if not waiting:
        return ""
    ended = (mine.get("lastState") or {}).get("terminated") or {}
    last = str(ended.get("message") or "").strip().splitlines()
    said = last[-1] if last else str(waiting.get("message") or "")
    code = f"exit status {ended['exitCode']}" if "exitCode" in ended else ""
    if code and ended.get("reason") == "OOMKilled":
        code += " (OOMKilled)"
    return ": ".join(part for part in (waiting["reason"], code, said) if part)[:SAID_MOST]


def moment(text: str) -> float:
    """Return an API server's time in seconds since the epoch."""
    return datetime.fromisoformat(text).astimezone(UTC).timestamp()
