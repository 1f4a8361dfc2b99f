"""What deciding costs: one tick of the planner for many classes, some of them under a downstream's limit."""

from __future__ import annotations

import statistics
import time

from bench.report import Table
from jobqueue_operator.planner.decide import plan
from jobqueue_operator.planner.facts import (
    Arrivals,
    Attempts,
    ClassFacts,
    DownstreamFacts,
    Facts,
    Phase,
    Span,
    WorkerFacts,
)
from jobqueue_operator.planner.wanted import CapacitySpec, PoolSpec, Wanted
from jobqueue_operator.resources import ClassSpec, DownstreamSpec

CLASSES = 3_000
EACH = 10  # classes a downstream
WORKERS = 4
TICKS = 12


def table() -> Table:
    """Plan for 3,000 busy classes of four workers each, tick after tick; the first ticks warm up and are left out."""
    wanted, facts = _world()
    took: list[float] = []
    previous = None
    for tick in range(TICKS):
        began = time.perf_counter()
        previous = plan(wanted, facts, previous, now=1e9 + 5 * tick)
        took.append(time.perf_counter() - began)
    warm = [seconds / CLASSES * 1e6 for seconds in took[2:]]
    result = Table(f"plan() for {CLASSES:,} classes, a third under a downstream", ["", "µs a class"])
    result.rows = [["median", f"{statistics.median(warm):.0f}"], ["most", f"{max(warm):.0f}"]]
    return result


def _world() -> tuple[Wanted, Facts]:
    schedule = [{"cron": "0 8 * * 1-5", "timeZone": "Europe/Oslo", "for": "2h", "min": 2}]
    pools, capacities, classes, downstreams = [], [], {}, {}
    workers: list[WorkerFacts] = []
    for number in range(CLASSES):
        name = f"c{number}"
        fields = {"name": name, "timeout": "30s", "concurrency": 4, "schedule": schedule}
        downstream = f"d{number // (3 * EACH)}" if number % 3 == 0 else None
        if downstream is not None:
            fields["capacity"] = {"ref": {"name": downstream}}
        pools.append(PoolSpec(key=name, spec=ClassSpec.model_validate(fields), revision="r", downstream=downstream))
        if downstream is not None and downstream not in downstreams:
            capacities.append(CapacitySpec(name=downstream, spec=DownstreamSpec(units=100)))
            downstreams[downstream] = (DownstreamFacts(limit=100, in_use=40),)
        ages = tuple(float(20 - 2 * k) for k in range(8))
        cohort = Attempts(finished=tuple(Span(0.1 * 2**k, 60, 4.0 * 2**k) for k in range(8)))
        arrivals = Arrivals(last=50 + number % 7, before=50, in_20s=200, in_60s=600)
        classes[name] = ClassFacts(
            ready=200, ages=ages, oldest_age=20.0, in_flight=16, arrivals=arrivals, attempts=cohort
        )
        workers += [
            WorkerFacts(name=f"{name}-{k}", class_=name, phase=Phase.READY, revision="r", age=60.0, busy=4, slots=4)
            for k in range(WORKERS)
        ]
    facts = Facts(classes=classes, downstreams=downstreams, workers=tuple(workers))
    return Wanted(pools=tuple(pools), capacities=tuple(capacities)), facts
