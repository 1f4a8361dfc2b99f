"""Pods as the planner's workers. Pure: what the API server said, and the time, in; facts out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from jobqueue_operator.planner.facts import Phase, WorkerFacts
from jobqueue_operator.planner.workload.names import REVISION
from jobqueue_operator.planner.workload.pod import CONTAINER
from jobqueue_operator.platforms.last_words import last_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jobqueue_operator.platforms.kubernetes.api import Object

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
CRASHES = "CrashLoopBackOff"
FAILING = frozenset({
    CRASHES, "ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName",
    "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
})  # fmt: skip
"""Reasons for which a container waits that do not go away by themselves, or only after a long time."""
ENDED = frozenset({"Succeeded", "Failed"})
"""Phases of a pod that will never run again: its ReplicaSet has replaced it already."""
SAID_MOST = 300
UP_FOR = 120.0
"""Seconds after which a container that was started again after a failure only waits for something: as many as its
startup probe has."""


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
    up: bool = False
    """Whether the worker's container runs."""
    failing: str = ""
    """Why it does not come up; empty when it may. The same while it waits between two crashes and while it runs."""

    @property
    def leaving(self) -> bool:
        """Whether its end was asked for."""
        return self.deleted_at is not None


def read(things: Iterable[Object], now: float) -> list[Pod]:
    """Return those that can still run, or run down. `now`: seconds since the epoch."""
    return [
        _read(thing, now)
        for thing in things
        if (thing.get("status") or {}).get("phase") not in ENDED or "deletionTimestamp" in thing["metadata"]
    ]


def worker(pod: Pod, class_: str, now: float) -> WorkerFacts:
    """Return a pod as a worker. One that runs is `Starting` here: only the queue knows that it is ready."""
    phase = Phase.DRAINING if pod.leaving else Phase.BACKOFF if pod.failing and not pod.up else Phase.STARTING
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


def _read(thing: Object, now: float) -> Pod:
    metadata, status = thing["metadata"], thing.get("status") or {}
    created = moment(metadata["creationTimestamp"])
    mine: Mapping[str, Any] = next((c for c in status.get("containerStatuses") or () if c.get("name") == CONTAINER), {})
    state = mine.get("state") or {}
    running = state.get("running") or {}
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
        up="running" in state,
        failing=_failing(status, now),
    )


def _failing(status: Mapping[str, Any], now: float) -> str:
    """Return why a pod does not come up: what its first container that fails waits for, or died of."""
    containers = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    return next(filter(None, (_why(container, now) for container in containers)), "")


def _why(container: Mapping[str, Any], now: float) -> str:
    state = container.get("state") or {}
    waiting, name = state.get("waiting") or {}, container.get("name", CONTAINER)
    ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated") or {}
    # Between two crashes it waits for nothing: it has ended, or runs for a moment. One that ended with 0 was drained.
    crashed = bool(ended.get("exitCode")) and not container.get("ready") and not _long_up(state, now)
    reason = waiting["reason"] if waiting.get("reason") in FAILING else CRASHES if crashed else ""
    if not reason:
        return ""
    how = said = ""
    if reason == CRASHES:
        how = f"exit status {ended['exitCode']}" if "exitCode" in ended else ""
        if how and ended.get("reason") == "OOMKilled":
            how += " (OOMKilled)"
        said = last_words(str(ended.get("message") or ""))
    if not how:
        said = said or str(waiting.get("message") or "")
    whose = f"container {name}" if name != CONTAINER else ""
    return ": ".join(part for part in (reason, whose, how, said) if part)[:SAID_MOST]


def _long_up(state: Mapping[str, Any], now: float) -> bool:
    since = (state.get("running") or {}).get("startedAt")
    return since is not None and now - moment(since) >= UP_FOR


def moment(text: str) -> float:
    """Return an API server's time in seconds since the epoch."""
    return datetime.fromisoformat(text).astimezone(UTC).timestamp()
