"""The planner of the operator, carried out as the local platform's loop does: up at once; retire, idle, stop."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from bench.autoscaling import sight
from jobqueue_operator.planner.decide import plan
from jobqueue_operator.planner.wanted import PoolSpec, Wanted
from jobqueue_operator.resources import ClassSpec

if TYPE_CHECKING:
    from bench.autoscaling.engine import Engine
    from bench.autoscaling.load import Load
    from jobqueue_operator.planner.plan import Plan, Pool

KEY, REVISION = "jobs", "1"
EPOCH = 1_800_000_000.0
"""Seconds since the epoch at which every run begins."""
WAKES_AFTER = 0.2
"""Seconds from a job's notice to a tick out of turn, while there are no pods."""


class Planner:
    """Calls the planner every tick, with what it returned before."""

    def __init__(self, load: Load, *, calm: bool = False, tick: float = 5.0) -> None:
        self.period = tick
        replicas = {"min": 0, "max": load.cap, "idleAfter": timedelta(seconds=30)}
        document = {
            "name": KEY,
            "concurrency": load.slots,
            "timeout": timedelta(hours=1),
            "target": {"oldestMessageAge": timedelta(seconds=load.target)},
            "replicas": replicas,
            "lease": {"duration": timedelta(seconds=load.lease)},
        }
        if calm:
            replicas["behavior"] = "Calm"
        spec = ClassSpec.model_validate(document)
        self._wanted = Wanted(pools=(PoolSpec(key=KEY, spec=spec, revision=REVISION, queue=KEY, database=KEY),))
        self.plan: Plan | None = None

    def woken_after(self, engine: Engine) -> float:
        """By LISTEN, while no pod is there."""
        return WAKES_AFTER if not any(not pod.closed for pod in engine.alive) else float("inf")

    def act(self, engine: Engine) -> None:
        """Plan, and carry the plan out."""
        facts = sight.facts(engine, KEY, REVISION, tick=self.period)
        self.plan = plan(self._wanted, facts, self.plan, now=EPOCH + engine.now, tick=self.period)
        pool = self.plan.pool(KEY)
        if pool is not None:
            carry_out(engine, pool)


def carry_out(engine: Engine, pool: Pool) -> None:
    """Do what a plan says of one pool."""
    named = {pod.name: pod for pod in engine.alive}
    changed = bool(pool.take_back or pool.retire)
    for name in pool.take_back:
        engine.reopen(named[name])
    for victim in pool.retire:
        engine.close(named[victim.worker])
    for victim in pool.stop:
        changed = changed or not named[victim.worker].closed
        engine.end(named[victim.worker])
    missing = pool.decision.replicas - sum(not pod.closed for pod in engine.alive)
    for _ in range(missing):
        engine.create()
    engine.log.actions += changed or missing > 0
