"""The planner's one entry: everything observed and asked for in, one plan out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobqueue_operator.planner import demand, rollout, victims
from jobqueue_operator.planner.plan import Decision, Plan, Pool, Reason

if TYPE_CHECKING:
    from jobqueue_operator.planner.facts import Facts
    from jobqueue_operator.planner.wanted import PoolSpec, Wanted

TICK = 5.0
"""Seconds between two decisions, where nothing else is said."""


def plan(wanted: Wanted, facts: Facts, previous: Plan | None, *, now: float, tick: float = TICK) -> Plan:
    """Decide for every pool and downstream, and for workers whose class is no longer asked for.

    `previous` is the plan of the last tick (or one made from what was stored, `memory`); `now` is in seconds since the
    epoch; `tick` the seconds between two calls. Never raises for any facts.
    """
    del tick  # for the law
    pools = [_pool(pool, facts, previous, now) for pool in wanted.pools]
    known = {pool.key for pool in wanted.pools}
    for class_ in sorted({w.class_ for w in facts.workers} - known):
        workers = [w for w in facts.workers if w.class_ == class_]
        gone = tuple(victims.victim(w, Reason.REMOVED) for w in victims.rank(workers))
        decision = Decision(0, Reason.REMOVED, "the class is no longer in the manifest")
        pools.append(Pool(class_, "", decision, stop=gone))
    return Plan(tuple(pools))


def _pool(wanted: PoolSpec, facts: Facts, previous: Plan | None, now: float) -> Pool:
    before = previous.pool(wanted.key) if previous is not None else None
    decision, memory = demand.decide(wanted, facts, before, now=now)
    workers = [w for w in facts.workers if w.class_ == wanted.key]
    if not facts.visible:
        # Who is idle or ready would be a guess: nobody is stopped.
        return Pool(wanted.key, wanted.revision, decision, memory=memory)
    stop = victims.surplus(workers, decision.replicas, wanted.revision)
    step = None if stop else rollout.step(workers, wanted.revision, decision.replicas)
    return Pool(wanted.key, wanted.revision, decision, stop=stop, rollout=step, memory=memory)
