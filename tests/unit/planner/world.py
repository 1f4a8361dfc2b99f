"""A small world in which the planner runs: single jobs of known length, workers that take a while to start."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
from jobqueue_operator.planner.record import Tick
from jobqueue_operator.planner.wanted import CapacitySpec, PoolSpec, Wanted
from jobqueue_operator.resources import ClassSpec, DownstreamSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobqueue_operator.planner.plan import Plan, Pool

EPOCH = 1_764_547_200.0
STEP = 0.25


def spec(name: str = "email", **fields: Any) -> ClassSpec:
    return ClassSpec.model_validate({"name": name, "timeout": "30s", **fields})


def asked(*specs: ClassSpec, units: int | None = None) -> Wanted:
    """Pools for these classes; with `units`, all lean on one downstream, which their `capacity` must name."""
    downstream = "db" if units is not None else None
    return Wanted(
        pools=tuple(
            PoolSpec(key=s.name, spec=s, revision="r1", queue="shop", downstream=downstream if s.capacity else None)
            for s in specs
        ),
        capacities=(CapacitySpec(name="db", spec=DownstreamSpec(units=units)),) if units is not None else (),
    )


@dataclass
class Worker:
    name: str
    born: float
    phase: Phase = Phase.STARTING
    ends: list[float] = field(default_factory=list)


@dataclass
class Class:
    """One class: jobs of one length, at a rate that may change at every tick."""

    spec: ClassSpec
    rates: Sequence[float]
    """Arrivals a second, tick by tick; the last one goes on."""
    length: float = 1.0
    start_delay: float = 8.0
    waiting: deque[float] = field(default_factory=deque)
    workers: list[Worker] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    came: list[float] = field(default_factory=list)
    owed: float = 0.0
    named: int = 0

    def run(self, begin: float, end: float, rate: float) -> None:
        now = begin
        while now < end - 1e-9:
            now += STEP
            self.owed += rate * STEP
            while self.owed >= 1 - 1e-9:
                self.owed -= 1
                self.waiting.append(now)
                self.came.append(now)
            for worker in list(self.workers):
                self.ended += [e for e in worker.ends if e <= now]
                worker.ends = [e for e in worker.ends if e > now]
                if worker.phase is Phase.STARTING and now - worker.born >= self.start_delay:
                    worker.phase = Phase.READY
                if worker.phase is Phase.DRAINING and not worker.ends:
                    self.workers.remove(worker)
            for worker in (w for w in self.workers if w.phase is Phase.READY):
                while self.waiting and len(worker.ends) < self.spec.concurrency:
                    self.waiting.popleft()
                    worker.ends.append(now + self.length)

    def seen(self, now: float, tick: float) -> ClassFacts:
        came = [now - c for c in self.came if now - c < 60]
        ages = [now - due for due in self.waiting]
        running = [self.length - (end - now) for w in self.workers for end in w.ends]
        done = [e for e in self.ended if now - (e - self.length) < 30]
        return ClassFacts(
            ready=len(ages),
            ages=tuple(ages[len(ages) * k // 8] for k in range(8)) if ages else (),
            oldest_age=ages[0] if ages else 0.0,
            in_flight=len(running),
            arrivals=Arrivals(
                tick=tick,
                last=sum(1 for c in came if c < tick),
                before=sum(1 for c in came if tick <= c < 2 * tick),
                in_20s=sum(1 for c in came if c < 20),
                in_60s=len(came),
            ),
            attempts=Attempts(
                finished=(Span(self.length, len(done), len(done) * self.length),) if done else (),
                running=(Span(max(running), len(running), sum(running)),) if running else (),
            ),
        )

    def carry_out(self, decided: Pool, now: float) -> None:
        by_name = {w.name: w for w in self.workers}
        for name in decided.take_back:
            by_name[name].phase = Phase.READY
        for victim in decided.retire:
            by_name[victim.worker].phase = Phase.RETIRED
        for victim in decided.stop:
            by_name[victim.worker].phase = Phase.DRAINING
        there = sum(1 for w in self.workers if w.phase in {Phase.STARTING, Phase.READY})
        for _ in range(decided.decision.replicas - there):
            self.named += 1
            self.workers.append(Worker(f"{self.spec.name}-{self.named}", now))


def run(classes: Sequence[Class], ticks: int, *, units: int | None = None, tick: float = 5.0) -> list[Tick]:
    """Run so many ticks in a closed loop, and return what a recorder would be given."""
    wanted = asked(*(c.spec for c in classes), units=units)
    made: list[Tick] = []
    previous: Plan | None = None
    for count in range(ticks):
        now = EPOCH + count * tick
        if count:
            for each in classes:
                each.run(now - tick, now, each.rates[min(count, len(each.rates) - 1)])
        facts = _facts(classes, now, tick, units)
        decided = plan(wanted, facts, previous, now=now, tick=tick)
        made.append(Tick(now=now, tick=tick, wanted=wanted, facts=facts, plan=decided, previous=previous))
        previous = decided
        for each in classes:
            pool = decided.pool(each.spec.name)
            assert pool is not None
            each.carry_out(pool, now)
    return made


def _facts(classes: Sequence[Class], now: float, tick: float, units: int | None) -> Facts:
    in_use = sum(c.spec.capacity.units_per_job * len(w.ends) for c in classes if c.spec.capacity for w in c.workers)
    return Facts(
        classes={c.spec.name: c.seen(now, tick) for c in classes},
        downstreams={"db": (DownstreamFacts(limit=units, in_use=in_use),)} if units is not None else {},
        workers=tuple(
            WorkerFacts(
                name=w.name,
                class_=c.spec.name,
                phase=w.phase,
                revision="r1",
                age=now - w.born,
                busy=len(w.ends),
                elapsed=sum(c.length - (end - now) for end in w.ends),
                slots=c.spec.concurrency,
                started_in=c.start_delay if w.phase is not Phase.STARTING else None,
            )
            for c in classes
            for w in c.workers
        ),
    )
