"""The operator's metrics: each queue's snapshot, absent where it cannot be read, and what the operator did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from jobqueue.signals.collector import Observation, SnapshotCollector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client.core import Metric

    from jobqueue_operator.cluster.rounds import Rounds


class _Doings(Collector):
    """What the operator decided, wanted and failed at."""

    def __init__(self, rounds: Callable[[], Rounds | None]) -> None:
        self._rounds = rounds

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of one scrape."""
        rounds = self._rounds()
        decisions = CounterMetricFamily("jobqueue_decisions", "Decisions, by reason.", labels=("reason",))
        errors = CounterMetricFamily("jobqueue_reconcile_errors", "Rounds that a JobQueue did not get through.")
        wanted = GaugeMetricFamily(
            "jobqueue_replicas", "Workers of a class.", labels=("namespace", "queue", "class", "state")
        )
        if rounds is None:
            return
        errors.add_metric((), rounds.errors)
        for reason, count in sorted(rounds.teller.decisions.items()):
            decisions.add_metric((reason,), count)
        for pool in rounds.plan.pools:
            wanted.add_metric((*pool.class_.split("/"), "desired"), pool.decision.replicas)
        yield from (decisions, errors, wanted)


def registry(rounds: Callable[[], Rounds | None]) -> CollectorRegistry:
    """Return a registry that asks `rounds` at each scrape; None where this operator does not act."""

    def observe() -> Iterable[Observation]:
        now = rounds()
        return now.observations() if now is not None else ()

    found = CollectorRegistry()
    found.register(SnapshotCollector(observe))
    found.register(_Doings(rounds))
    return found


def render(found: CollectorRegistry) -> bytes:
    """Return the metrics as text."""
    return generate_latest(found)
