"""The snapshot for Prometheus: what could not be read is absent, never 0.

Zero would say «nobody waits» at the moment when nobody can tell. One collector serves every queue of a process,
because a metric's name may be registered once.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from jobqueue.errors import JobQueueError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.core import Metric

    from jobqueue.signals.snapshot import ClassSnapshot, Snapshot

log = logging.getLogger(__name__)

_QUEUE = ("namespace", "queue")
_CLASS = (*_QUEUE, "class")


_CLASS_GAUGES: dict[str, tuple[str, Callable[[ClassSnapshot], float]]] = {
    "ready_jobs": ("Jobs that are due and held by nobody.", lambda c: c.ready),
    "scheduled_jobs": ("Pending jobs that are not due yet.", lambda c: c.scheduled),
    "oldest_message_age_seconds": (
        "Time since the oldest ready job became due; 0 when none is ready.",
        lambda c: c.oldest_age_seconds,
    ),
    "in_flight_jobs": ("Live leases.", lambda c: c.in_flight),
    "expired_leases": ("Leases that ended and were not swept yet.", lambda c: c.expired),
    "dead_jobs": ("Dead jobs that are still kept, counted up to 10,000.", lambda c: c.dead),
    "oldest_dead_job_age_seconds": ("Time since the oldest dead job died.", lambda c: c.oldest_dead_age_seconds),
    "longest_running_seconds": ("Time since the oldest live attempt started.", lambda c: c.longest_running_seconds),
    "target_age_seconds": ("The age that the class is sized for.", lambda c: c.target_age_seconds),
    "lease_seconds": ("How long a lease lasts without a renewal.", lambda c: c.lease_seconds),
    "timeout_seconds": ("How long a handler may take.", lambda c: c.timeout_seconds),
    "paused": ("1 while nothing of the class is claimed.", lambda c: c.paused),
}


@dataclass(frozen=True)
class Observation:
    """One queue as last seen.

    `snapshot`: None when it could not be read lately. `classes`: those to expose when a database holds more than
    this queue's; None means all. `succeeded_at`: epoch seconds of the last successful reading, kept while blind.
    """

    namespace: str
    queue: str
    snapshot: Snapshot | None
    classes: frozenset[str] | None = None
    succeeded_at: float | None = None


class SnapshotCollector(Collector):
    """A custom collector over observations; `observe` is called at each scrape and must not take long.

    When it raises a database or queue error nothing is exposed.
    """

    def __init__(self, observe: Callable[[], Iterable[Observation]]) -> None:
        self._observe = observe

    def describe(self) -> Iterator[Metric]:
        """Name the metrics without observing anything."""
        return iter(_Families().all())

    def collect(self) -> Iterator[Metric]:
        """Observe, and yield the metrics that have a value."""
        families = _Families()
        try:
            for observation in self._observe():
                families.add(observation)
        except (psycopg.Error, JobQueueError, OSError) as error:
            log.warning("the queue's metrics are absent from this scrape: %s", type(error).__name__)
            return
        yield from (family for family in families.all() if family.samples)


class _Families:
    """The metric families of one scrape."""

    def __init__(self) -> None:
        self._class = {name: (_gauge(name, text, _CLASS), value) for name, (text, value) in _CLASS_GAUGES.items()}
        self._jobs = _gauge("jobs", "Jobs by status; ended ones are counted by the workers.", (*_CLASS, "status"))
        self._blocked = _gauge("blocked_jobs", "Ready jobs that more workers cannot help.", (*_CLASS, "reason"))
        self._expirations = CounterMetricFamily(
            "jobqueue_lease_expirations", "Leases that the sweep took over: workers lost.", labels=_CLASS
        )
        self._units = _gauge("downstream_units", "Units of a downstream.", (*_QUEUE, "capacity", "state"))
        self._dead_tuples = _gauge("dead_tuples", "Dead rows of a hot table.", (*_QUEUE, "table"))
        self._bytes = _gauge("table_bytes", "Size of a table with its indexes.", (*_QUEUE, "table"))
        self._transaction = _gauge(
            "oldest_transaction_age_seconds", "Age of the transaction that holds back vacuum.", _QUEUE
        )
        self._notify = _gauge("notify_queue_usage_ratio", "Fill of the server's NOTIFY queue.", _QUEUE)
        self._succeeded = _gauge(
            "last_successful_observation_timestamp_seconds", "When the queue was last read.", _QUEUE
        )

    def all(self) -> list[Metric]:
        return [
            *(family for family, _ in self._class.values()),
            self._jobs,
            self._blocked,
            self._expirations,
            self._units,
            self._dead_tuples,
            self._bytes,
            self._transaction,
            self._notify,
            self._succeeded,
        ]

    def add(self, observation: Observation) -> None:
        labels = (observation.namespace, observation.queue)
        if observation.succeeded_at is not None:
            self._succeeded.add_metric(labels, observation.succeeded_at)
        if observation.snapshot is None:
            return
        for facts in observation.snapshot.classes:
            if observation.classes is None or facts.class_ in observation.classes:
                self._add_class((*labels, facts.class_), facts)
        for downstream in observation.snapshot.downstreams:
            self._units.add_metric((*labels, downstream.downstream, "limit"), downstream.limit)
            self._units.add_metric((*labels, downstream.downstream, "in_use"), downstream.in_use)
        database = observation.snapshot.database
        for table, rows in database.dead_tuples.items():
            self._dead_tuples.add_metric((*labels, table), rows)
        for table, size in database.table_bytes.items():
            self._bytes.add_metric((*labels, table), size)
        self._transaction.add_metric(labels, database.oldest_transaction_age_seconds)
        self._notify.add_metric(labels, database.notify_queue_usage_ratio)

    def _add_class(self, labels: tuple[str, ...], facts: ClassSnapshot) -> None:
        for family, value in self._class.values():
            family.add_metric(labels, value(facts))
        for status in ("pending", "running", "dead"):
            self._jobs.add_metric((*labels, status), getattr(facts, status))
        for reason in ("unsupported", "key", "tenant"):
            self._blocked.add_metric((*labels, reason), getattr(facts, f"blocked_{reason}"))
        self._expirations.add_metric(labels, facts.lease_expirations)


def _gauge(name: str, text: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"jobqueue_{name}", text, labels=labels)
