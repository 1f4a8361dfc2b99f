"""The planner's one entry: everything observed and asked for in, one plan out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jobqueue_operator.planner import rollout, victims, window
from jobqueue_operator.planner.ask import Ask, ask
from jobqueue_operator.planner.plan import Bound, Condition, Decision, Plan, Pool, Reason, Remark

if TYPE_CHECKING:
    from jobqueue_operator.planner.facts import Facts
    from jobqueue_operator.planner.wanted import PoolSpec, Wanted

TICK = 5.0
"""Seconds between two decisions, where nothing else is said."""


def plan(wanted: Wanted, facts: Facts, previous: Plan | None, *, now: float, tick: float = TICK) -> Plan:
    """Decide for every pool and downstream, and for workers whose class is no longer asked for.

    `previous` is the plan of the last tick (or one made from what was stored, `priors.restore`); `now` is in seconds
    since the epoch; `tick` the seconds between two calls. Never raises for any facts.
    """
    before = {pool.class_: pool for pool in previous.pools} if previous is not None else {}
    pools = []
    for pool in wanted.pools:
        wish = ask(pool, facts, before.get(pool.key), now=now, tick=tick)
        pools.append(_pool(pool, wish, _fits(pool, wanted, wish), facts, before.get(pool.key), now))
    known = {pool.key for pool in wanted.pools}
    for class_ in sorted({w.class_ for w in facts.workers} - known):
        workers = [w for w in facts.workers if w.class_ == class_]
        gone = tuple(victims.victim(w, Reason.REMOVED) for w in victims.rank(workers))
        decision = Decision(0, Reason.REMOVED, "the class is no longer in the manifest")
        pools.append(Pool(class_, "", decision, stop=gone))
    return Plan(tuple(pools))


def _fits(pool: PoolSpec, wanted: Wanted, wish: Ask) -> int | None:
    """Return how many workers the downstream's units are enough for, or None where nothing limits them."""
    limit = next((c.spec.units for c in wanted.capacities if c.name == pool.downstream), None)
    return max(limit // wish.charge, 1) if limit is not None and wish.charge else None


def _pool(wanted: PoolSpec, wish: Ask, fits: int | None, facts: Facts, before: Pool | None, now: float) -> Pool:
    decision = Decision(wish.replicas, wish.reason, wish.message, wish.terms, wish.bounds, wish.remarks)
    if fits is not None and decision.replicas > fits and not wish.blind:
        text = f"{fits} fit into {wanted.downstream}; {wish.replicas} wanted: {wish.message}"
        decision = replace(
            decision,
            replicas=fits,
            reason=Reason.DOWNSTREAM_CAPACITY,
            message=text,
            bounds=(*decision.bounds, Bound(reason=Reason.DOWNSTREAM_CAPACITY, replicas=fits, message=text)),
            remarks=(*decision.remarks, Remark(Condition.AT_CAPACITY, f"class {wanted.spec.name}: {text}")),
        )
    if wish.blind:
        # Who is idle or ready would be a guess: nobody is stopped.
        return Pool(wanted.key, wanted.revision, decision, memory=wish.memory)
    manner = window.MANNERS[wanted.spec.replicas.behavior]
    current = before.decision.replicas if before is not None else decision.replicas
    memory = window.moved(wish.memory, current, decision.replicas, now, manner=manner)
    workers = [w for w in facts.workers if w.class_ == wanted.key]
    moves = victims.moves(workers, decision.replicas, wanted.revision)
    moving = moves.retire or moves.take_back
    step = None if moving else rollout.step(workers, wanted.revision, decision.replicas)
    return Pool(
        wanted.key,
        wanted.revision,
        decision,
        retire=moves.retire,
        take_back=moves.take_back,
        stop=moves.stop,
        rollout=step,
        memory=memory,
    )
