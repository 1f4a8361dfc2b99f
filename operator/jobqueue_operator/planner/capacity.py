"""Downstreams: how many units there are, who gets them, and what each database's claims are told to hold to.

Charged is every worker that is not known to be dead, with all its slots: starting, retired and draining ones, those of
an old revision, and those whose class was removed. That keeps fleets from being started that could only wait. What
keeps the downstream whole is not this arithmetic but the claim, which counts the units in flight under a lock, whatever
workers exist.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jobqueue_operator.planner import adaptive, budget, estimate, share, split
from jobqueue_operator.planner.memory import CapacityMemory
from jobqueue_operator.planner.plan import Allocation, Reason, Share

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jobqueue_operator.planner.ask import Ask
    from jobqueue_operator.planner.facts import Facts
    from jobqueue_operator.planner.plan import Plan
    from jobqueue_operator.planner.wanted import CapacitySpec, PoolSpec, Wanted


@dataclass(frozen=True, slots=True)
class _Sharer:
    """One pool of a downstream, with what it asks for."""

    pool: PoolSpec
    ask: Ask
    claimant: share.Claimant
    allowed: int | None = None
    """Units that its namespace may have together, where that is what holds it back."""


def divide(
    wanted: Wanted, facts: Facts, asks: Mapping[str, Ask], previous: Plan | None, *, now: float, tick: float
) -> tuple[Allocation, ...]:
    """Return the allocation of every downstream, in the order they are asked for."""
    before = {a.downstream: a for a in previous.downstreams} if previous is not None else {}
    return tuple(
        _allocate(capacity, wanted, facts, asks, before.get(capacity.name), now=now, tick=tick)
        for capacity in wanted.capacities
    )


def _allocate(
    capacity: CapacitySpec,
    wanted: Wanted,
    facts: Facts,
    asks: Mapping[str, Ask],
    before: Allocation | None,
    *,
    now: float,
    tick: float,
) -> Allocation:
    ceiling = budget.ceiling(capacity, facts.connections)
    if ceiling is None:
        ceiling = before.ceiling if before is not None else 0
    pools = [p for p in sorted(wanted.pools, key=lambda p: p.key) if p.downstream == capacity.name]
    seen = facts.downstreams.get(capacity.name, ())
    in_use = sum(d.in_use for d in seen) if seen else None
    memory = before.memory if before is not None else CapacityMemory()
    now_working = adaptive.working(
        capacity, ceiling, _sight(pools, facts, asks, in_use, tick=tick), memory, now=now, tick=tick
    )
    limit, memory = now_working.limit, now_working.memory
    sharers = _allowed(
        capacity, [_sharer(capacity, p, asks[p.key], limit) for p in pools if p.spec.capacity is not None]
    )
    removed = _removed(capacity, wanted, facts)
    free = max(limit - removed, 0)
    proposed = share.divide(free, [s.claimant for s in sharers])
    given = _agreed(free, sharers, proposed, memory)
    shares = tuple(_share(capacity, s, given, sharers, limit, removed) for s in sharers)
    databases = sorted({s.pool.database for s in sharers} | {d.database for d in seen})
    needs = {
        name: sum(x.allocated for s, x in zip(sharers, shares, strict=True) if s.pool.database == name)
        for name in databases
    }
    held = {d.database: split.Held(d.limit, d.in_use) for d in seen}
    last = split.Split(dict(before.limits), dict(memory.charged)) if before is not None else None
    told = split.step(limit, needs, {name: held.get(name) for name in databases}, last)
    moving = len(databases) > 1 and sum(told.limits.values()) < limit
    used = f"{in_use} in use" if in_use is not None else "nothing known of what is in use"
    return Allocation(
        downstream=capacity.name,
        ceiling=ceiling,
        limit=limit,
        in_use=in_use,
        reason=Reason.MOVING if moving else now_working.reason,
        message=f"{now_working.message}, {used}",
        shares=shares,
        limits=told.limits,
        remarks=now_working.remarks,
        removed=removed,
        memory=replace(
            memory,
            given=tuple(sorted(given.items())),
            proposed=tuple(sorted(proposed.items())),
            charged=tuple(sorted(told.charged.items())),
        ),
    )


def _removed(capacity: CapacitySpec, wanted: Wanted, facts: Facts) -> int:
    """Return what workers are charged whose class is asked for no more."""
    asked = {pool.key for pool in wanted.pools}
    gone = (facts.classes.get(worker.class_) for worker in facts.workers if worker.class_ not in asked)
    return sum(seen.charge for seen in gone if seen is not None and seen.downstream == capacity.name)


def _sight(
    pools: Sequence[PoolSpec], facts: Facts, asks: Mapping[str, Ask], in_use: int | None, *, tick: float
) -> adaptive.Sight | None:
    """Bring the classes of one downstream together: what is in flight for it, how long that takes, how much fails."""
    if in_use is None:
        return None
    weight = total = finished = failed = ended = 0.0
    waiting = few = False
    for pool in pools:
        ask, seen = asks[pool.key], facts.classes.get(pool.key)
        if ask.terms is None or seen is None:
            continue
        units = pool.spec.capacity.units_per_job if pool.spec.capacity is not None else 1
        share = float(seen.in_flight * units)
        weight += share
        total += share * estimate.lately(seen.attempts, otherwise=ask.terms.service)
        finished += sum(span.count for span in seen.attempts.finished)
        failed += seen.attempts.failed
        count, _ = seen.attempts.lately
        ended += count * units
        few = few or (seen.in_flight > 0 and count < estimate.LATELY_LEAST)
        waiting = waiting or seen.ready - seen.blocked > 0
    if weight <= 0:
        return None
    return adaptive.Sight(
        in_flight=round(weight),
        service=total / weight,
        ended=None if few else ended / (2.0 * tick),
        finished=finished,
        failed=failed,
        waiting=waiting,
    )


def rooms(wanted: Wanted, downstreams: Iterable[Allocation], asks: Mapping[str, Ask]) -> dict[str, int]:
    """Return, for each pool with a downstream, how many workers beside those that leave may run now.

    A worker holds its units until it is gone. The latest pool takes what is free first.
    """
    found: dict[str, int] = {}
    for allocation in downstreams:
        sharing = sorted(
            (pool for pool in wanted.pools if pool.downstream == allocation.downstream),
            key=lambda pool: (-asks[pool.key].lateness, pool.key),
        )
        free = (
            allocation.limit
            - allocation.removed
            - sum(asks[pool.key].exist * asks[pool.key].charge for pool in sharing)
        )
        share = {s.pool: s.replicas for s in allocation.shares}
        for pool in sharing:
            ask = asks[pool.key]
            spec = pool.spec.capacity
            if spec is None:
                continue
            have = ask.exist - ask.leaving
            more = max(min(ask.replicas, share.get(pool.key, 0)) - have, 0)
            fit = max(free, 0) // max(ask.charge, 1)
            left = free - fit * ask.charge
            if fit < more and (ask.exist + fit == 0 or left >= spec.units_per_job + spec.units_per_pod):
                # One whose slots are not all free: the claim keeps the limit. And nobody is left with no worker.
                fit += 1
            found[pool.key] = have + min(more, fit)
            free -= min(more, fit) * ask.charge
    return found


def _sharer(capacity: CapacitySpec, pool: PoolSpec, ask: Ask, limit: int) -> _Sharer:
    spec = pool.spec.capacity
    assert spec is not None  # noqa: S101 - for the type checker
    charge = min(max(ask.charge, 1), max(limit, 1))
    # A class that cannot be seen has what it has, and gets no more.
    wanted = ask.exist if ask.blind else ask.replicas
    minimum = max(ask.minimum, math.ceil(spec.min_units / charge))
    weight, priority = float(spec.weight), spec.priority
    allowed = next((a for a in capacity.spec.allow if a.namespace == pool.namespace), None)
    if allowed is not None and pool.namespace != capacity.namespace:
        weight, priority = min(weight, float(allowed.weight)), min(priority, allowed.max_priority)
        minimum = min(minimum, max(ask.minimum, allowed.min_units // charge))
    return _Sharer(
        pool,
        ask,
        share.Claimant(
            key=pool.key,
            charge=charge,
            wanted=wanted,
            minimum=ask.exist if ask.blind else min(minimum, limit // charge),
            weight=weight,
            priority=priority,
            lateness=ask.lateness,
        ),
    )


def _allowed(capacity: CapacitySpec, sharers: Sequence[_Sharer]) -> list[_Sharer]:
    """Hold the pools of each other namespace together to what the owner allows it: divided among them as all is."""
    bounds = {a.namespace: a.max_units for a in capacity.spec.allow if a.namespace != capacity.namespace}
    given: dict[str, int] = {}
    for namespace, most in bounds.items():
        if most is not None:
            given |= share.divide(most, [s.claimant for s in sharers if s.pool.namespace == namespace])
    return [_held(s, given[s.pool.key], bounds[s.pool.namespace]) if s.pool.key in given else s for s in sharers]


def _held(sharer: _Sharer, workers: int, most: int | None) -> _Sharer:
    claimant = sharer.claimant
    if workers >= max(claimant.wanted, claimant.minimum):
        return sharer
    bound = replace(claimant, wanted=min(claimant.wanted, workers), minimum=min(claimant.minimum, workers))
    return replace(sharer, claimant=bound, allowed=most)


def _agreed(
    limit: int, sharers: Sequence[_Sharer], proposed: Mapping[str, int], memory: CapacityMemory
) -> dict[str, int]:
    """Let a pool lose workers to others only when two ticks in a row say so; nobody gets what another still has."""
    had, said = dict(memory.given), dict(memory.proposed)
    charge = {s.pool.key: s.claimant.charge for s in sharers}
    wanted = {s.pool.key: s.claimant.wanted for s in sharers}
    given = dict(proposed)
    for key, number in proposed.items():
        still = min(had.get(key, 0), wanted[key])
        if number < still and said.get(key, still) >= still:
            given[key] = still
    over = sum(given[k] * charge[k] for k in given) - limit
    for sharer in sorted(sharers, key=lambda s: (s.claimant.lateness, s.pool.key)):
        # Those that gain wait; and where the limit itself was lowered, everybody goes down to what was proposed.
        key = sharer.pool.key
        while over > 0 and given[key] > had.get(key, 0):
            given[key] -= 1
            over -= charge[key]
    return dict(proposed) if over > 0 else given


def _share(
    capacity: CapacitySpec,
    sharer: _Sharer,
    given: Mapping[str, int],
    sharers: Sequence[_Sharer],
    limit: int,
    removed: int,
) -> Share:
    key, claimant, ask = sharer.pool.key, sharer.claimant, sharer.ask
    spec = sharer.pool.spec.capacity
    assert spec is not None  # noqa: S101 - for the type checker
    workers = given[key]
    allocated = workers * claimant.charge
    one = spec.units_per_job + spec.units_per_pod
    left = limit - removed - sum(given[s.pool.key] * s.claimant.charge for s in sharers)
    others = [s for s in sharers if s is not sharer]
    reserved = any(s.claimant.minimum for s in others)
    if (
        workers < (ask.replicas if sharer.allowed is None else sharer.claimant.wanted)
        and one <= limit
        and (workers == 0 or (left >= one and not reserved and _first_in_line(sharer, given, sharers)))
    ):
        # One more, whose slots will not all be busy at once: the claim keeps the limit, and jobs do not wait for a
        # worker that would never fit as a whole.
        workers += 1
        allocated += min(max(left, 0), claimant.charge)
    held = tuple(s.pool.key for s in others if given[s.pool.key] > 0) if workers < ask.replicas else ()
    return Share(
        pool=key,
        minimum=claimant.minimum * claimant.charge,
        asked=ask.replicas * ask.charge,
        allocated=allocated,
        replicas=workers,
        held_back_by=held,
        message=_say(capacity, sharer, workers, allocated, others, given, removed),
    )


def _first_in_line(sharer: _Sharer, given: Mapping[str, int], sharers: Sequence[_Sharer]) -> bool:
    line = [s for s in sharers if given[s.pool.key] < s.ask.replicas]
    first = min(line, key=lambda s: (-s.claimant.priority, -s.claimant.lateness, s.pool.key))
    return first is sharer


def _say(
    capacity: CapacitySpec,
    sharer: _Sharer,
    workers: int,
    allocated: int,
    others: Sequence[_Sharer],
    given: Mapping[str, int],
    removed: int,
) -> str:
    ask = sharer.ask
    if workers >= ask.replicas:
        return f"has the {allocated} units of {capacity.name} that it asks for"
    asks = f"asks for {ask.replicas * ask.charge} units of {capacity.name}, has {allocated}"
    if sharer.allowed is not None and workers >= sharer.claimant.wanted:
        return f"{asks}: its namespace {sharer.pool.namespace} is allowed {sharer.allowed} units in all"
    parts = [f"workers of removed classes have {removed}"] if removed else []
    for other in others:
        units = given[other.pool.key] * other.claimant.charge
        if units:
            least = other.claimant.minimum * other.claimant.charge
            parts.append(f"{other.pool.key} has {units}" + (f" ({least} reserved)" if least else ""))
    return f"{asks}: {', '.join(parts)}" if parts else f"{asks}: that is the limit"
