"""The planner's one entry: everything observed and asked for in, one plan out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jobqueue_operator.planner import capacity, rollout, surge, versions, victims, window
from jobqueue_operator.planner.ask import ask
from jobqueue_operator.planner.plan import Bound, Condition, Decision, Plan, Pool, Reason, Remark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobqueue_operator.planner.ask import Ask
    from jobqueue_operator.planner.facts import ClassFacts, Facts, WorkerFacts
    from jobqueue_operator.planner.plan import Share
    from jobqueue_operator.planner.wanted import PoolSpec, Wanted

TICK = 5.0
"""Seconds between two decisions, where nothing else is said."""


def plan(wanted: Wanted, facts: Facts, previous: Plan | None, *, now: float, tick: float = TICK) -> Plan:
    """Decide for every pool and downstream, and for workers whose class is no longer asked for.

    `previous` is the plan of the last tick (or one made from what was stored, `priors.restore`); `now` is in seconds
    since the epoch; `tick` the seconds between two calls. Never raises for any facts.
    """
    before = {pool.class_: pool for pool in previous.pools} if previous is not None else {}
    workers: dict[str, list[WorkerFacts]] = {}
    for worker in facts.workers:
        workers.setdefault(worker.class_, []).append(worker)
    asks = {
        pool.key: ask(pool, facts, workers.get(pool.key, ()), before.get(pool.key), now=now, tick=tick)
        for pool in wanted.pools
    }
    downstreams = capacity.divide(wanted, facts, asks, previous, now=now, tick=tick)
    rooms = capacity.rooms(wanted, downstreams, asks)
    rolling = {p.key for p in wanted.pools if rollout.is_under_way(workers.get(p.key, ()), p.revision)}
    surging = surge.surging(wanted, downstreams, asks, rolling, before)
    shares = {share.pool: share for allocation in downstreams for share in allocation.shares}
    pools = [
        _pool(
            pool,
            asks[pool.key],
            shares.get(pool.key),
            rooms.get(pool.key),
            workers.get(pool.key, ()),
            before.get(pool.key),
            facts.classes.get(pool.key),
            now,
            surges=pool.key in surging,
            rolls=pool.key in rolling,
        )
        for pool in wanted.pools
    ]
    known = {pool.key for pool in wanted.pools}
    for class_ in sorted(workers.keys() - known):
        gone = tuple(victims.victim(w, Reason.REMOVED) for w in victims.rank(workers[class_]))
        decision = Decision(0, Reason.REMOVED, "the class is no longer in the manifest")
        pools.append(Pool(class_, "", decision, stop=gone))
    return Plan(tuple(pools), downstreams)


def _pool(
    wanted: PoolSpec,
    wish: Ask,
    share: Share | None,
    room: int | None,
    workers: Sequence[WorkerFacts],
    before: Pool | None,
    seen: ClassFacts | None,
    now: float,
    *,
    surges: bool,
    rolls: bool,
) -> Pool:
    decision = Decision(wish.replicas, wish.reason, wish.message, wish.terms, wish.bounds, wish.remarks)
    if share is not None and decision.replicas > share.replicas and not wish.blind:
        fits = share.replicas
        text = f"{fits} of {wish.replicas} workers: {share.message}; {wish.message}"
        condition = Condition.MINIMUM_NOT_MET if fits < wish.minimum else Condition.AT_CAPACITY
        decision = replace(
            decision,
            replicas=fits,
            reason=Reason.DOWNSTREAM_CAPACITY,
            message=text,
            bounds=(*decision.bounds, Bound(reason=Reason.DOWNSTREAM_CAPACITY, replicas=fits, message=text)),
            remarks=(*decision.remarks, Remark(condition, f"class {wanted.spec.name}: {text}")),
        )
    if wish.blind:
        # Who is idle or ready would be a guess: nobody is stopped.
        return Pool(wanted.key, wanted.revision, decision, room, surge=surges, memory=wish.memory)
    manner = window.MANNERS[wanted.spec.replicas.behavior]
    current = before.decision.replicas if before is not None else decision.replicas
    memory = wish.memory
    if Reason.DOWNSTREAM_CAPACITY not in {decision.reason, before.decision.reason if before is not None else None}:
        # What others' demand took or gave back says nothing of this one's.
        memory = window.moved(memory, current, decision.replicas, now, manner=manner)
    kept = None
    if wanted.spec.replicas.pin != 0:  # whoever says that there shall be no worker gets none
        kept = versions.kept(
            workers, wanted.revision, decision.replicas, seen, before.kept if before is not None else None
        )
    moves = victims.moves(workers, decision.replicas, wanted.revision, kept, surge=surges and rolls)
    moving = moves.retire or moves.take_back
    step = None if moving else rollout.step(workers, wanted.revision, decision.replicas, kept)
    return Pool(
        wanted.key,
        wanted.revision,
        decision,
        room,
        retire=moves.retire,
        take_back=moves.take_back,
        stop=moves.stop,
        rollout=step,
        kept=kept,
        surge=surges,
        memory=memory,
    )
