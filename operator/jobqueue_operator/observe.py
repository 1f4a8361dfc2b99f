"""Facts from what was seen: the queue's snapshot, and the platform's workers. Pure, so that a recorded tick replays.

One snapshot answers for every class of a database; it is read once a tick and nothing else is asked.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from jobqueue_operator.planner.facts import (
    Arrivals,
    Attempts,
    ClassFacts,
    DownstreamFacts,
    Facts,
    Phase,
    QueuedVersion,
    Span,
    WorkerFacts,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jobqueue.signals import ArrivalSnapshot, AttemptSnapshot, ClassSnapshot, Snapshot, WorkerSnapshot

FIRST_BEAT = timedelta(milliseconds=1)
"""A worker is seen when it registers; only what is later than that, by more than rounding, is a heartbeat."""
WAITED = 1.0
"""Seconds between a worker's registration and its admission that are a wait for units, and no part of its start."""
_LATER_INCARNATION = re.compile(r"-(?!1$)\d+$")
"""A worker numbers its registrations; a later one says nothing of how long the process took to start."""
SEEN_WITHIN = 30.0
"""Seconds: a registered worker that was heard of within this is taken for ready."""


def facts(snapshot: Snapshot | None, workers: Sequence[WorkerFacts]) -> Facts:
    """Bring one tick's observations together; `snapshot` is None when the queue could not be read."""
    if snapshot is None:
        return Facts(visible=False, workers=tuple(workers))
    return Facts(
        classes={c.class_: _class(c, snapshot) for c in snapshot.classes},
        downstreams={d.downstream: (DownstreamFacts(limit=d.limit, in_use=d.in_use),) for d in snapshot.downstreams},
        workers=tuple(_worker(w, snapshot) for w in workers),
        connections={} if snapshot.database.connections is None else {"": snapshot.database.connections},
    )


def part(whole: Facts, snapshot: Snapshot, classes: Iterable[str], workers: Sequence[WorkerFacts]) -> Facts:
    """Return the facts of some of a database's classes and their workers. `whole`: `facts` of the same snapshot."""
    return replace(
        whole,
        classes={name: whole.classes[name] for name in classes if name in whole.classes},
        workers=tuple(_worker(w, snapshot) for w in workers),
    )


def registrations(snapshot: Snapshot, worker: WorkerFacts, *, state: str) -> list[int]:
    """Return the queue's ids of the process that a worker has now, as far as they are in this state."""
    entries = _entries(snapshot, worker.class_, worker.name)
    return [entry.id for entry in entries if entry.state == state and _current(entry, snapshot, worker)]


def earlier_registrations(snapshot: Snapshot, worker: WorkerFacts) -> list[int]:
    """Return the queue's ids of the processes that a worker had before the one it has now."""
    entries = _entries(snapshot, worker.class_, worker.name)
    return [entry.id for entry in entries if not _current(entry, snapshot, worker)]


def all_registrations(snapshot: Snapshot, class_: str, name: str) -> list[int]:
    """Return every id of a worker that is gone for good."""
    return [entry.id for entry in _entries(snapshot, class_, name)]


def _class(seen: ClassSnapshot, snapshot: Snapshot) -> ClassFacts:
    return ClassFacts(
        ready=seen.ready,
        blocked=seen.blocked,
        unsupported=seen.blocked_unsupported,
        blocked_key=seen.blocked_key,
        blocked_tenant=seen.blocked_tenant,
        ages=seen.age_quantiles_seconds,
        estimated=seen.estimated,
        scheduled=seen.scheduled,
        in_flight=seen.in_flight,
        expired=seen.expired,
        dead=seen.dead,
        oldest_age=seen.oldest_age_seconds,
        paused=seen.paused,
        due_soon=seen.due_soon,
        arrivals=_arrivals(seen.arrivals),
        attempts=_attempts(seen.attempts),
        versions=tuple(QueuedVersion(v.kind, v.version, v.jobs) for v in snapshot.versions if v.class_ == seen.class_),
        downstream=seen.downstream,
        charge=seen.units_per_pod + seen.units_per_job * seen.concurrency if seen.downstream is not None else 0,
    )


def _arrivals(seen: ArrivalSnapshot) -> Arrivals:
    tick, two, in_20s, in_60s = (created + again for created, again in zip(seen.created, seen.again, strict=True))
    return Arrivals(tick=seen.tick_seconds, last=tick, before=max(two - tick, 0.0), in_20s=in_20s, in_60s=in_60s)


def _attempts(seen: AttemptSnapshot) -> Attempts:
    return Attempts(
        window=seen.window_seconds,
        finished=tuple(Span(s.longest_seconds, s.count, s.total_seconds) for s in seen.finished),
        running=tuple(Span(s.longest_seconds, s.count, s.total_seconds) for s in seen.running),
        failed=seen.failed,
        lately=seen.lately,
    )


def _worker(worker: WorkerFacts, snapshot: Snapshot) -> WorkerFacts:
    if worker.phase is Phase.BACKOFF:
        return worker
    entries = [e for e in _entries(snapshot, worker.class_, worker.name) if _current(e, snapshot, worker)]
    if not entries:
        return worker
    states = {e.state for e in entries}
    phase = worker.phase
    if phase is Phase.STARTING:
        if any(_works(e, snapshot) for e in entries):
            phase = Phase.READY
        elif states == {"retired"}:
            phase = Phase.RETIRED
    return replace(
        worker,
        phase=phase,
        busy=sum(e.in_flight for e in entries),
        elapsed=sum(e.elapsed_seconds for e in entries),
        slots=entries[-1].slots,
        admitted=states != {"waiting"},
        started_in=_started_in(worker, entries[-1], snapshot),
        silent_for=min(e.seen_age_seconds for e in entries),
        lacks=tuple(v.name for v in snapshot.versions if entries[-1].id in v.lacking),
    )


def _started_in(worker: WorkerFacts, entry: WorkerSnapshot, snapshot: Snapshot) -> float | None:
    """Return the seconds from the process's creation until it could claim, which says how long the next start takes."""
    if entry.ready_at is None or entry.admitted_at is None or _LATER_INCARNATION.search(entry.name):
        return None
    if (entry.admitted_at - entry.registered_at).total_seconds() > WAITED:
        return None
    created = snapshot.now - timedelta(seconds=worker.age)
    return max((entry.ready_at - created).total_seconds(), 0.0)


def _works(entry: WorkerSnapshot, snapshot: Snapshot) -> bool:
    """Whether it is admitted and its heart beats; that begins when its app is imported, after its registration."""
    seen_at = snapshot.now - timedelta(seconds=entry.seen_age_seconds)
    beats = seen_at - entry.registered_at > FIRST_BEAT and entry.seen_age_seconds <= SEEN_WITHIN
    return entry.state == "active" and beats


def _entries(snapshot: Snapshot, class_: str, name: str) -> list[WorkerSnapshot]:
    # A worker adds to its name, behind a slash, what tells its incarnations apart.
    return [e for e in snapshot.workers_of(class_) if e.name == name or e.name.startswith(f"{name}/")]


def _current(entry: WorkerSnapshot, snapshot: Snapshot, worker: WorkerFacts) -> bool:
    """Whether this registration is of the process that runs now: it cannot be older than that."""
    return (snapshot.now - entry.registered_at).total_seconds() <= worker.age
