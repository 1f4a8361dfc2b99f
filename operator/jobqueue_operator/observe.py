"""Facts from what was seen: the queue's snapshot, and the platform's workers. Pure, so that a recorded tick replays.

One snapshot answers for every class of a database; it is read once a tick and nothing else is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from jobqueue_operator.planner.facts import ClassFacts, DownstreamFacts, Facts, Phase, WorkerFacts

Snapshot: TypeAlias = Mapping[str, Any]
"""What the queue's `snapshot()` returns."""

SEEN_WITHIN = 30.0
"""Seconds: a registered worker that was heard of within this is taken for ready."""


def facts(snapshot: Snapshot | None, workers: Sequence[WorkerFacts]) -> Facts:
    """Bring one tick's observations together; `snapshot` is None when the queue could not be read."""
    if snapshot is None:
        return Facts(visible=False, workers=tuple(workers))
    return Facts(
        classes={c["class"]: _class(c) for c in snapshot["classes"]},
        downstreams={
            d["downstream"]: DownstreamFacts(limit=d["limit"], in_use=d["in_use"]) for d in snapshot["downstreams"]
        },
        workers=tuple(_worker(w, snapshot) for w in workers),
    )


def registrations(snapshot: Snapshot, worker: WorkerFacts, *, current: bool) -> list[int]:
    """Return the queue's ids of a worker: of the process that runs now, or of those that ran before it."""
    return [
        entry["id"]
        for entry in snapshot["workers"]
        if _is(entry, worker.class_, worker.name) and _current(entry, snapshot, worker) is current
    ]


def all_registrations(snapshot: Snapshot, class_: str, name: str) -> list[int]:
    """Return every id of a worker that is gone for good."""
    return [entry["id"] for entry in snapshot["workers"] if _is(entry, class_, name)]


def _class(entry: Mapping[str, Any]) -> ClassFacts:
    blocked = entry["blocked"]
    return ClassFacts(
        ready=entry["ready"],
        blocked=sum(blocked.values()),
        unsupported=blocked.get("unsupported", 0),
        scheduled=entry["scheduled"],
        in_flight=entry["in_flight"],
        expired=entry["expired"],
        dead=entry["dead"],
        oldest_age=float(entry["oldest_age"]),
        paused=entry["paused"],
    )


def _worker(worker: WorkerFacts, snapshot: Snapshot) -> WorkerFacts:
    if worker.phase is Phase.BACKOFF:
        return worker
    entries = [e for e in snapshot["workers"] if _is(e, worker.class_, worker.name) and _current(e, snapshot, worker)]
    busy = sum(e["in_flight"] for e in entries)
    ready = any(e["state"] == "active" and e["seen_age"] <= SEEN_WITHIN for e in entries)
    phase = Phase.READY if ready and worker.phase is Phase.STARTING else worker.phase
    return replace(worker, phase=phase, busy=busy)


def _is(entry: Mapping[str, Any], class_: str, name: str) -> bool:
    # A worker adds to its name what tells its incarnations apart.
    return bool(entry["class"] == class_ and str(entry["name"]).startswith(name))


def _current(entry: Mapping[str, Any], snapshot: Snapshot, worker: WorkerFacts) -> bool:
    """Whether this registration is of the process that runs now: it cannot be older than that."""
    return bool(float(snapshot["now"]) - float(entry["registered_at"]) <= worker.age)
