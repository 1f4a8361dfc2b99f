"""The snapshot as frozen dataclasses. All ages and durations are seconds, by the database's clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jobqueue.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class ArrivalSnapshot:
    """Jobs that became due, counted back from now over four spans: a tick, two ticks, 20 s and 60 s."""

    tick_seconds: float = 5.0
    created: tuple[float, float, float, float] = (0, 0, 0, 0)  # within the span, and due by now
    again: tuple[float, float, float, float] = (0, 0, 0, 0)  # created or tried before; not those that ended since
    estimated: bool = False  # some come from a sample


@dataclass(frozen=True)
class SpanSnapshot:
    """Attempts of about the same length."""

    longest_seconds: float
    count: float
    total_seconds: float


@dataclass(frozen=True)
class AttemptSnapshot:
    """How long attempts take; `finished` and `failed` are weighted counts when there were too many to read."""

    window_seconds: float = 30.0  # of the starts of those that have finished
    finished: tuple[SpanSnapshot, ...] = ()  # ended with an outcome of their own: not released, snoozed or cancelled
    failed: float = 0.0  # of the finished
    lately: tuple[float, float] = (0.0, 0.0)  # ended in the last two ticks: how many, and their seconds together
    running: tuple[SpanSnapshot, ...] = ()  # every live one, whenever started, by the time since its start


@dataclass(frozen=True)
class ClassSnapshot:
    """One job class: its waiting, running and dead jobs, and the settings that judge them."""

    class_: str
    paused: bool
    ready: int  # due and held by nobody: unsupported kinds and expired leases too
    scheduled: int  # pending and not due
    blocked_unsupported: int  # ready, but of no kind that its workers, or the last one it had, understand
    blocked_key: int  # ready, but parked behind a concurrency key in use
    blocked_tenant: int  # ready, but its tenant is at its limit
    estimated: bool  # ready, scheduled, blocked and ages come from a sample
    oldest_age_seconds: float  # since the oldest ready job became due; exact up to 20,000 lanes; 0 when none is ready
    age_quantiles_seconds: tuple[float, ...]  # of the ready jobs, oldest first, at 0, 1/8 … 7/8; empty when none
    in_flight: int  # live leases
    expired: int  # leases that ended and were not swept yet
    longest_running_seconds: float  # the oldest live lease's attempt; 0 when none
    lease_expirations: int  # swept since the beginning: a counter
    dead: int  # counted up to 10,000
    oldest_dead_age_seconds: float  # 0 when none is dead
    sleepers: int  # workers, relays and operators that asked for a NOTIFY
    target_age_seconds: float
    lease_seconds: float
    timeout_seconds: float
    dead_retention_seconds: float
    max_attempts: int
    concurrency: int  # slots of a worker that sets none itself
    downstream: str | None
    units_per_job: int
    units_per_pod: int
    memory: Mapping[str, Any] | None = None  # what the planner kept with `remember`
    due_soon: tuple[tuple[float, int], ...] = ()  # of the scheduled, due within so many seconds: cumulative, ascending
    arrivals: ArrivalSnapshot = ArrivalSnapshot()
    attempts: AttemptSnapshot = AttemptSnapshot()

    @property
    def blocked(self) -> int:
        """Ready jobs that more workers cannot help."""
        return self.blocked_unsupported + self.blocked_key + self.blocked_tenant

    @property
    def pending(self) -> int:
        """Jobs of status pending: ready ones without the expired leases, which are running, and scheduled ones."""
        return max(self.ready - self.expired, 0) + self.scheduled

    @property
    def running(self) -> int:
        """Jobs of status running: all leases, the expired ones too."""
        return self.in_flight + self.expired

    @property
    def unfinished(self) -> int:
        """Jobs that have not ended: pending and running."""
        return self.pending + self.running


@dataclass(frozen=True)
class WorkerSnapshot:
    """One registered worker process that has not ended."""

    id: int
    name: str
    class_: str
    state: str  # waiting (not admitted) · active · retired (claims nothing more)
    slots: int
    units: int  # of its downstream, held by the process itself
    in_flight: int
    registered_at: datetime
    seen_age_seconds: float  # since its last heartbeat
    info: Mapping[str, Any]  # what it said of itself when it registered
    elapsed_seconds: float = 0  # since the starts of the attempts it holds, together
    admitted_at: datetime | None = None  # its downstream had units for it; None while it waits
    ready_at: datetime | None = None  # its app is imported: it claims from here on


@dataclass(frozen=True)
class VersionSnapshot:
    """A kind and version on which the workers of a class differ, and of which jobs are queued."""

    class_: str
    kind: str
    version: int
    jobs: int  # waiting, whenever due, or in flight; counted up to 1,000 a priority
    lacking: frozenset[int]  # ids of the workers that do not understand it

    @cached_property
    def name(self) -> str:
        """What workers call it."""
        return f"{self.kind}@{self.version}"


@dataclass(frozen=True)
class DownstreamSnapshot:
    """One downstream: its limit and what leases and processes hold of it, in units."""

    downstream: str
    limit: int
    in_use: int


@dataclass(frozen=True)
class DatabaseSnapshot:
    """What the database says of itself, over all classes."""

    epoch: int  # of the operator that leads it; 0 before the first
    leader: str
    oldest_transaction_age_seconds: float  # holds back vacuum; 0 when there is none
    oldest_transaction_pid: int | None
    dead_tuples: Mapping[str, int]  # table → rows
    table_bytes: Mapping[str, int]  # table, its indexes and partitions → bytes
    notify_queue_usage_ratio: float  # 1 is full, and then every notifying commit fails
    connections: int | None = None  # that the server grants to ordinary users, over all databases


@dataclass(frozen=True)
class Snapshot:
    """All facts of one queue at one moment."""

    now: datetime
    classes: tuple[ClassSnapshot, ...]
    workers: tuple[WorkerSnapshot, ...]
    downstreams: tuple[DownstreamSnapshot, ...]
    database: DatabaseSnapshot
    versions: tuple[VersionSnapshot, ...] = ()  # at most 20, first what the oldest workers understand

    def find(self, class_: str) -> ClassSnapshot | None:
        """Return the facts of one class, or None when it is not registered."""
        return next((facts for facts in self.classes if facts.class_ == class_), None)

    def workers_of(self, class_: str) -> tuple[WorkerSnapshot, ...]:
        """Return the workers of one class."""
        return tuple(worker for worker in self.workers if worker.class_ == class_)


def decode(answer: Mapping[str, Any]) -> Snapshot:
    """Turn the answer of `snapshot()` into dataclasses; members it does not know are ignored.

    Raises SchemaError when a member is missing or has another type: the schema is older than this code.
    """
    try:
        return Snapshot(
            now=_moment(answer["now"]),
            classes=tuple(_class(row) for row in answer["classes"]),
            workers=tuple(_worker(row) for row in answer["workers"]),
            downstreams=tuple(
                DownstreamSnapshot(str(row["downstream"]), int(row["limit"]), int(row["in_use"]))
                for row in answer["downstreams"]
            ),
            database=_database(answer["database"]),
            versions=tuple(_version(row) for row in answer["versions"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        message = f"snapshot() answered what this release does not know ({error!r}); run: jobqueue migrate"
        raise SchemaError(message) from error


def _class(row: Mapping[str, Any]) -> ClassSnapshot:
    blocked = row["blocked"]
    return ClassSnapshot(
        class_=str(row["class"]),
        paused=bool(row["paused"]),
        ready=int(row["ready"]),
        scheduled=int(row["scheduled"]),
        blocked_unsupported=int(blocked["unsupported"]),
        blocked_key=int(blocked["key"]),
        blocked_tenant=int(blocked["tenant"]),
        estimated=bool(row["estimated"]),
        oldest_age_seconds=float(row["oldest_age"]),
        age_quantiles_seconds=tuple(float(age) for age in row["ages"] if age is not None),
        in_flight=int(row["in_flight"]),
        expired=int(row["expired"]),
        longest_running_seconds=float(row["longest_running"]),
        lease_expirations=int(row["lease_expirations"]),
        dead=int(row["dead"]),
        oldest_dead_age_seconds=float(row["oldest_dead_age"]),
        sleepers=int(row["sleepers"]),
        target_age_seconds=float(row["target_age"]),
        lease_seconds=float(row["lease"]),
        timeout_seconds=float(row["timeout"]),
        dead_retention_seconds=float(row["dead_retention"]),
        max_attempts=int(row["max_attempts"]),
        concurrency=int(row["concurrency"]),
        downstream=None if row["downstream"] is None else str(row["downstream"]),
        units_per_job=int(row["units_per_job"]),
        units_per_pod=int(row["units_per_pod"]),
        memory=None if row["memory"] is None else dict(row["memory"]),
        due_soon=tuple((float(seconds), int(count)) for seconds, count in row["due_soon"]),
        arrivals=_arrivals(row["arrivals"]),
        attempts=_attempts(row["attempts"]),
    )


def _arrivals(row: Mapping[str, Any]) -> ArrivalSnapshot:
    created, again = ((float(a), float(b), float(c), float(d)) for a, b, c, d in (row["created"], row["again"]))
    return ArrivalSnapshot(float(row["tick"]), created, again, bool(row["estimated"]))


def _attempts(row: Mapping[str, Any]) -> AttemptSnapshot:
    count, seconds = row["lately"]
    return AttemptSnapshot(
        window_seconds=float(row["window"]),
        finished=_spans(row["finished"]),
        failed=float(row["failed"]),
        lately=(float(count), float(seconds)),
        running=_spans(row["running"]),
    )


def _spans(rows: Sequence[Sequence[float]]) -> tuple[SpanSnapshot, ...]:
    return tuple(SpanSnapshot(float(longest), float(count), float(total)) for longest, count, total in rows)


def _worker(row: Mapping[str, Any]) -> WorkerSnapshot:
    return WorkerSnapshot(
        id=int(row["id"]),
        name=str(row["name"]),
        class_=str(row["class"]),
        state=str(row["state"]),
        slots=int(row["slots"]),
        units=int(row["units"]),
        in_flight=int(row["in_flight"]),
        registered_at=_moment(row["registered_at"]),
        seen_age_seconds=float(row["seen_age"]),
        info=dict(row["info"]),
        elapsed_seconds=float(row["elapsed"]),
        admitted_at=_moment_or_none(row["admitted_at"]),
        ready_at=_moment_or_none(row["ready_at"]),
    )


def _version(row: Mapping[str, Any]) -> VersionSnapshot:
    return VersionSnapshot(
        class_=str(row["class"]),
        kind=str(row["kind"]),
        version=int(row["version"]),
        jobs=int(row["jobs"]),
        lacking=frozenset(int(id_) for id_ in row["lacking"]),
    )


def _database(row: Mapping[str, Any]) -> DatabaseSnapshot:
    pid = row["oldest_transaction_pid"]
    return DatabaseSnapshot(
        epoch=int(row["epoch"]),
        leader=str(row["leader"]),
        oldest_transaction_age_seconds=float(row["oldest_transaction_age"]),
        oldest_transaction_pid=None if pid is None else int(pid),
        dead_tuples={str(table): int(rows or 0) for table, rows in row["dead_tuples"].items()},
        table_bytes={str(table): int(size or 0) for table, size in row["table_bytes"].items()},
        notify_queue_usage_ratio=float(row["notify_queue_usage"]),
        connections=int(row["connections"]),
    )


def _moment(epoch_seconds: float) -> datetime:
    return datetime.fromtimestamp(float(epoch_seconds), UTC)


def _moment_or_none(epoch_seconds: float | None) -> datetime | None:
    return None if epoch_seconds is None else _moment(epoch_seconds)
