"""One policy on recorded load: the planner with a spec of its own, and the workers and queues it would have had.

Modelled: jobs are a fluid (`planner.fluid`), workers start after the recorded delay and end when what they hold is
done. Taken over as recorded, whatever the policy: arrivals, lengths of attempts, blocked and scheduled jobs, pauses.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from jobqueue_operator.planner.decide import plan
from jobqueue_operator.planner.facts import Attempts, ClassFacts, DownstreamFacts, Facts, Phase, Span, WorkerFacts
from jobqueue_operator.planner.fluid import FluidQueue
from jobqueue_operator.planner.score import Score

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobqueue_operator.planner.plan import Plan, Pool
    from jobqueue_operator.planner.wanted import PoolSpec, Wanted

REVISION = "replay"
"""Of every modelled worker: rollouts are not replayed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one class met in one step, whatever the policy."""

    facts: ClassFacts
    """As recorded; what depends on the policy is put in its place."""
    seconds: float | None = None
    """The step's length; None when the class was not seen for so long that what came is not known."""
    arrivals: float = 0.0
    """Jobs that came in this step and that workers can help."""
    service: float = 1.0
    """Mean seconds of an attempt."""
    start_delay: float = 5.0
    """Seconds that a worker started now needs until it works."""


@dataclass(slots=True)
class _Worker:
    name: str
    born: float
    ready_at: float
    started_in: float | None = None
    phase: Phase = Phase.STARTING
    done_at: float | None = None
    """Retired or draining: when what it held is done."""


@dataclass(slots=True)
class ModelledPool:
    """One class: its queue, its workers and their score."""

    queue: FluidQueue = field(default_factory=FluidQueue)
    score: Score = field(default_factory=Score)
    workers: list[_Worker] = field(default_factory=list)
    _started: int = 0

    def begin(self, key: str, clock: float, workers: int) -> None:
        """Take over so many workers, ready and long up."""
        for _ in range(workers):
            self._start(key, clock - 3600.0, 0.0)

    def slots(self, each: int) -> int:
        """Return how many jobs can run at once."""
        return each * sum(1 for w in self.workers if w.phase is Phase.READY)

    def settle(self, clock: float) -> None:
        """Let workers that are due come up, and those that drain and are done go."""
        kept = []
        for worker in self.workers:
            if worker.phase is Phase.STARTING and clock >= worker.ready_at:
                worker.phase = Phase.READY
            if worker.phase is not Phase.DRAINING or clock < (worker.done_at or clock):
                kept.append(worker)
        self.workers = kept

    def seen(self, key: str, clock: float, slots: int) -> list[WorkerFacts]:
        """Return the workers as a platform would see them: running jobs spread evenly, retired ones until done."""
        ready = sum(1 for w in self.workers if w.phase is Phase.READY)
        running = round(self.queue.running)
        found = []
        turn = 0
        for worker in self.workers:
            busy = 0
            if worker.phase is Phase.READY:
                busy = running // ready + (turn < running % ready)
                turn += 1
            elif worker.done_at is not None and clock < worker.done_at:
                busy = 1
            found.append(
                WorkerFacts(
                    name=worker.name,
                    class_=key,
                    phase=worker.phase,
                    revision=REVISION,
                    age=clock - worker.born,
                    busy=busy,
                    slots=slots,
                    started_in=worker.started_in if worker.phase is not Phase.STARTING else None,
                )
            )
        return found

    def carry_out(self, decided: Pool, clock: float, load: Load, slots: int) -> None:
        """Do what a platform would: take back, retire, stop, and start what is missing."""
        by_name = {worker.name: worker for worker in self.workers}
        for name in decided.take_back:
            if name in by_name and by_name[name].phase is Phase.RETIRED:
                by_name[name].phase, by_name[name].done_at = Phase.READY, None
        before = self.slots(slots)
        leaving = [by_name[v.worker] for v in decided.retire if v.worker in by_name]
        ending = [by_name[v.worker] for v in decided.stop if v.worker in by_name]
        for worker, phase in [*((w, Phase.RETIRED) for w in leaving), *((w, Phase.DRAINING) for w in ending)]:
            if worker.done_at is None:
                # What it holds it finishes: for how long, the share of its slots that are busy says.
                busy = self.queue.running / before if before and worker.phase is Phase.READY else 0.0
                worker.done_at = clock + load.service * min(busy, 1.0)
            worker.phase = phase
        # Jobs that those who go take with them do not wait again.
        self.queue.running = min(self.queue.running, float(self.slots(slots)))
        staying = sum(1 for w in self.workers if w.phase in {Phase.STARTING, Phase.READY})
        for _ in range(decided.replicas - staying):
            self._start(decided.class_, clock, load.start_delay)

    def _start(self, key: str, clock: float, delay: float) -> None:
        self._started += 1
        started_in = delay if delay > 0 else None
        self.workers.append(_Worker(f"{key}-{self._started}", clock, clock + delay, started_in))


class Policy:
    """The planner with one spec, carried through recorded load."""

    def __init__(self) -> None:
        self.pools: dict[str, ModelledPool] = {}
        self._previous: Plan | None = None
        self._limits: dict[str, Mapping[str, int]] = {}
        self._specs: dict[str, PoolSpec] = {}

    def begin(self, previous: Plan | None) -> None:
        """Start with what the recorded planner remembered."""
        self._previous = previous

    def begin_class(self, key: str, clock: float, workers: int) -> None:
        """Start a class with so many workers."""
        self.pools[key] = ModelledPool()
        self.pools[key].begin(key, clock, workers)

    def advance(self, clock: float, loads: Mapping[str, Load]) -> None:
        """Let the queues and workers go on for a step, up to `clock`."""
        for pool in self.pools.values():
            pool.settle(clock)
        slots = self._slots(loads)
        for key, pool in self.pools.items():
            load = loads.get(key)
            if load is None:
                continue
            if load.seconds is None:
                seen = load.facts
                waiting = max(seen.ready - seen.blocked, 0)
                pool.queue.restart(clock, waiting=waiting, running=seen.in_flight, ages=seen.ages)
                continue
            pool.queue.advance(
                clock, load.seconds, arrivals=load.arrivals, slots=slots.get(key, 0.0), service=load.service
            )

    def _slots(self, loads: Mapping[str, Load]) -> dict[str, float]:
        """Return how many jobs of each class can run: its slots, or what the claims let by of its downstream's units.

        Classes that want more units together than there are get the same part of what they want.
        """
        open_ = {
            key: asked
            for key, asked in self._specs.items()
            if key in self.pools and key in loads and not loads[key].facts.paused and not asked.spec.paused
        }
        found = {key: float(self.pools[key].slots(asked.spec.concurrency)) for key, asked in open_.items()}
        for name, limits in self._limits.items():
            free, units = float(sum(limits.values())), dict[str, float]()
            for key, asked in open_.items():
                capacity, queue = asked.spec.capacity, self.pools[key].queue
                if asked.downstream == name and capacity is not None:
                    free -= capacity.units_per_pod * len(self.pools[key].workers)
                    jobs = min(found[key], queue.running + queue.waiting + loads[key].arrivals)
                    units[key] = capacity.units_per_job * jobs
            if (wanted := sum(units.values())) > free:
                found |= {key: found[key] * max(free, 0.0) / wanted for key in units}
        return found

    def decide(
        self, wanted: Wanted, recorded: Facts, loads: Mapping[str, Load], *, clock: float, now: float, tick: float
    ) -> None:
        """Plan, and carry the plan out. `wanted` is what this policy asks for."""
        self._specs = {pool.key: pool for pool in wanted.pools}
        facts = self._facts(wanted, recorded, loads, clock)
        decided = plan(wanted, facts, self._previous, now=now, tick=tick)
        self._previous = decided
        for allocation in decided.downstreams:
            self._limits[allocation.downstream] = {**self._limits.get(allocation.downstream, {}), **allocation.limits}
        for pool in decided.pools:
            if pool.class_ not in self.pools:
                continue
            asked, load = self._specs.get(pool.class_), loads.get(pool.class_)
            slots = asked.spec.concurrency if asked is not None else 1
            self.pools[pool.class_].carry_out(pool, clock, load or Load(facts=ClassFacts()), slots)

    def score(self, key: str, clock: float, seconds: float) -> tuple[int, float]:
        """Count a step for one class; return its workers and its oldest age."""
        pool, asked = self.pools[key], self._specs.get(key)
        ages = pool.queue.ages(clock)
        oldest = ages[0] if ages else 0.0
        if asked is not None:
            decided = self._previous.pool(key) if self._previous is not None else None
            pool.score.add(
                seconds,
                workers=len(pool.workers),
                age=oldest,
                target=asked.spec.target.oldest_message_age.total_seconds(),
                decision=decided.decision if decided is not None else None,
            )
        return len(pool.workers), oldest

    def _facts(self, wanted: Wanted, recorded: Facts, loads: Mapping[str, Load], clock: float) -> Facts:
        workers = [
            seen
            for key, pool in self.pools.items()
            for seen in pool.seen(key, clock, self._specs[key].spec.concurrency if key in self._specs else 1)
        ]
        if not recorded.visible:
            return Facts(visible=False, workers=tuple(workers))
        classes = {
            pool.key: self._class(pool.key, loads[pool.key], clock) for pool in wanted.pools if pool.key in loads
        }
        return Facts(
            classes=classes,
            downstreams={c.name: self._downstream(c.name, recorded, wanted, workers) for c in wanted.capacities},
            workers=tuple(workers),
            connections=recorded.connections,
        )

    def _class(self, key: str, load: Load, clock: float) -> ClassFacts:
        queue, seen = self.pools[key].queue, load.facts
        ages = queue.ages(clock)
        running = round(queue.running)
        return replace(
            seen,
            ready=round(queue.waiting) + seen.blocked,
            ages=ages if queue.waiting >= 1 else seen.ages if seen.blocked else (),
            oldest_age=ages[0] if ages else seen.oldest_age if seen.blocked else 0.0,
            in_flight=running,
            expired=0,
            attempts=_running(seen.attempts, running, load.service),
        )

    def _downstream(
        self, name: str, recorded: Facts, wanted: Wanted, workers: list[WorkerFacts]
    ) -> tuple[DownstreamFacts, ...]:
        """Return what each database would say: its limit as this policy last set it, and what its classes use."""
        found = []
        for seen in recorded.downstreams.get(name, ()):
            used = 0
            for asked in wanted.pools:
                capacity = asked.spec.capacity
                if asked.downstream == name and asked.database == seen.database and capacity is not None:
                    of_pool = [w for w in workers if w.class_ == asked.key]
                    used += capacity.units_per_pod * len(of_pool) + capacity.units_per_job * sum(
                        w.busy for w in of_pool
                    )
            limit = self._limits.get(name, {}).get(seen.database, seen.limit)
            found.append(DownstreamFacts(limit=limit, in_use=used, database=seen.database))
        return tuple(found)


def _running(seen: Attempts, running: int, service: float) -> Attempts:
    """Return recorded attempts with as many running ones as this policy has, of the recorded lengths."""
    count = sum(span.count for span in seen.running)
    if running == count:
        return seen
    if running <= 0:
        return replace(seen, running=())
    if count <= 0:
        return replace(seen, running=(Span(service / 2, float(running), running * service / 2),))
    share = running / count
    return replace(seen, running=tuple(Span(s.longest, s.count * share, s.seconds * share) for s in seen.running))
