"""The worker's metrics: sums that runners reported, and what the supervisor sees, in Prometheus' format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from jobqueue.worker import counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

OUTCOMES = ("done", "retry", "dead", "cancelled", "released", "snoozed", "spent", "already")
RELEASES = ("drain", "replaced", "late", "reconnected", "unknown kind")
_LABELS = ("namespace", "queue", "class")


@dataclass
class Sums:
    """Buckets and sum of one histogram, added up."""

    bounds: tuple[float, ...]
    buckets: list[int] = field(default_factory=list)
    total: float = 0.0

    def add(self, told: list[Any]) -> None:
        """Add what a runner reported."""
        if not self.buckets:
            self.buckets = [0] * (len(self.bounds) + 1)
        self.buckets = [mine + more for mine, more in zip(self.buckets, told[0], strict=True)]
        self.total += told[1]

    def cumulative(self) -> list[tuple[str, float]]:
        """Return (upper bound, cumulative count) as Prometheus wants them."""
        buckets = self.buckets or [0] * (len(self.bounds) + 1)
        below = 0
        shown: list[tuple[str, float]] = []
        for bound, number in zip((*map(str, map(float, self.bounds)), "+Inf"), buckets, strict=True):
            below += number
            shown.append((bound, float(below)))
        return shown


@dataclass
class Gauges:
    """What is so at this moment."""

    slots: int = 0
    running: int = 0
    stuck: int = 0
    draining: bool = False


class Metrics(Collector):
    """Adds up and exposes."""

    def __init__(self, namespace: str, queue: str, class_name: str) -> None:
        self._values = (namespace, queue, class_name)
        self.gauges = Gauges()
        self._claims = 0
        self._stale = 0
        self._lost = 0
        self._acks = dict.fromkeys(OUTCOMES, 0)
        self._released = dict.fromkeys(RELEASES, 0)
        self._wait = Sums(counts.WAIT)
        self._attempts = Sums(counts.ATTEMPTS)
        self._lease_used = Sums(counts.LEASE)
        self._process: dict[str, Sums] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def know(self, kinds: list[str]) -> None:
        """Start the series of these kinds at 0."""
        for kind in kinds:
            self._process.setdefault(kind, Sums(counts.PROCESS))

    def add(self, told: dict[str, Any]) -> None:
        """Add what a runner counted since its last report."""
        self._claims += told["claims"]
        self._stale += told["stale"]
        self._lost += told["lost"]
        for outcome, number in told["acks"].items():
            self._acks[outcome] = self._acks.get(outcome, 0) + number
        for reason, number in told["released"].items():
            self.released(reason, number)
        self._wait.add(told["wait"])
        self._attempts.add(told["attempts"])
        self._lease_used.add(told["lease_used"])
        for kind, histogram in told["process"].items():
            self._process.setdefault(kind, Sums(counts.PROCESS)).add(histogram)

    def released(self, reason: str, number: int) -> None:
        """Count jobs that were given back."""
        self._released[reason] = self._released.get(reason, 0) + number

    def acked(self, outcome: str, number: int) -> None:
        """Count acknowledgements that the supervisor made itself."""
        self._acks[outcome] = self._acks.get(outcome, 0) + number

    def lost(self, number: int) -> None:
        """Count leases that ended with their worker."""
        self._lost += number

    def text(self) -> bytes:
        """Return the exposition."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Nothing is told ahead: names are fixed here."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        yield self._counter("claims", "Jobs claimed.", {(): self._claims})
        yield self._counter(
            "acks",
            "Attempts that ended, by what became of the job.",
            {(k,): v for k, v in self._acks.items()},
            "outcome",
        )
        yield self._counter(
            "stale_acks_rejected", "Acknowledgements refused because the lease was lost.", {(): self._stale}
        )
        yield self._counter("leases_lost", "Leases that ended before their job did.", {(): self._lost})
        yield self._counter(
            "released", "Jobs given back with their attempt.", {(k,): v for k, v in self._released.items()}, "reason"
        )
        for name, text, sums in (
            ("wait_seconds", "From due to the start of the handler.", self._wait),
            ("attempts", "Which attempt each start was.", self._attempts),
            ("lease_used_ratio", "Share of the lease used when the handler ended.", self._lease_used),
        ):
            histogram = HistogramMetricFamily(f"jobqueue_{name}", text, labels=_LABELS)
            histogram.add_metric(self._values, sums.cumulative(), sums.total)
            yield histogram
        process = HistogramMetricFamily("jobqueue_process_seconds", "Duration of handlers.", labels=(*_LABELS, "kind"))
        for kind, sums in self._process.items():
            process.add_metric((*self._values, kind), sums.cumulative(), sums.total)
        yield process
        gauges = self.gauges
        slots = GaugeMetricFamily("jobqueue_slots", "Slots by state.", labels=(*_LABELS, "state"))
        slots.add_metric((*self._values, "busy"), gauges.running)
        slots.add_metric((*self._values, "idle"), max(0, gauges.slots - gauges.running))
        yield slots
        for name, text, value in (
            ("stuck_handlers", "Handlers past their timeout that nothing can stop.", gauges.stuck),
            ("draining", "1 while the worker drains.", int(gauges.draining)),
        ):
            gauge = GaugeMetricFamily(f"jobqueue_{name}", text, labels=_LABELS)
            gauge.add_metric(self._values, value)
            yield gauge

    def _counter(self, name: str, text: str, values: dict[tuple[str, ...], int], *labels: str) -> CounterMetricFamily:
        family = CounterMetricFamily(f"jobqueue_{name}", text, labels=(*_LABELS, *labels))
        for extra, value in values.items():
            family.add_metric((*self._values, *extra), value)
        return family
