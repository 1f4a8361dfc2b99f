"""Which rollouts may start a new worker before an old one ends: those for which the downstream has units to spare.

All others go one out, one in. It is decided when a rollout begins and only ever taken back, so that a rollout changes
its manner at most once. What is spared is what nobody is granted and nobody holds: a worker that starts, drains or has
an old revision is charged like any other, and so is each worker that another rollout starts beside its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from jobqueue_operator.planner.ask import Ask
    from jobqueue_operator.planner.plan import Allocation, Pool
    from jobqueue_operator.planner.wanted import PoolSpec, Wanted


@dataclass(frozen=True, slots=True)
class _Bound:
    """Units that some pools may have together."""

    units: int
    pools: Collection[str]


def surging(
    wanted: Wanted,
    downstreams: Iterable[Allocation],
    asks: Mapping[str, Ask],
    rolling: Collection[str],
    before: Mapping[str, Pool],
) -> frozenset[str]:
    """Return the keys of the pools that may have one worker more than is decided, while they are `rolling`.

    `rolling`: keys of the pools that have workers of an old revision. `before`: the pools of the last plan. Where there
    is no downstream any rollout may, so that nothing changes when one begins.
    """
    able = {pool.key for pool in wanted.pools if pool.surges}
    found = {pool.key for pool in wanted.pools if pool.spec.capacity is None}
    for allocation in downstreams:
        pools = {
            p.key: p for p in wanted.pools if p.downstream == allocation.downstream and p.spec.capacity is not None
        }
        found |= _of_downstream(wanted, allocation, pools, asks, able & set(rolling), before)
    return frozenset(found & able)


def _of_downstream(
    wanted: Wanted,
    allocation: Allocation,
    pools: Mapping[str, PoolSpec],
    asks: Mapping[str, Ask],
    rolling: Collection[str],
    before: Mapping[str, Pool],
) -> set[str]:
    if allocation.in_use is None:
        return set()
    granted = {share.pool: share.allocated for share in allocation.shares}
    used = {key: max(granted.get(key, 0), asks[key].exist * asks[key].charge) for key in pools}
    # Units in flight may be those of workers that are in no manifest, of which not all are known.
    others = max(allocation.in_use - sum(used.values()), allocation.removed)
    bounds = [_Bound(allocation.limit - others, pools), *_narrower(wanted, allocation, pools)]
    goes_on = {key for key in pools if key in before and before[key].revision == pools[key].revision}
    surged = {key for key in goes_on if before[key].surge}
    found: set[str] = set()
    # Those that have their worker already, then those that begin.
    for key in sorted(pools.keys() & rolling, key=lambda key: (key not in surged, key)):
        charge = asks[key].charge
        if asks[key].blind or (key in goes_on and key not in surged):
            continue
        more = max(granted.get(key, 0) + charge, used[key] if key in surged else used[key] + charge)
        with_it = used | {key: more}
        if all(sum(with_it[k] for k in bound.pools) <= bound.units for bound in bounds if key in bound.pools):
            used = with_it
            found.add(key)
    return found


def _narrower(wanted: Wanted, allocation: Allocation, pools: Mapping[str, PoolSpec]) -> list[_Bound]:
    """Return what each database's claims are told, and what each other namespace is allowed."""
    bounds = [
        _Bound(units, [key for key, pool in pools.items() if pool.database == database])
        for database, units in allocation.limits.items()
    ]
    capacity = next(c for c in wanted.capacities if c.name == allocation.downstream)
    for allowed in capacity.spec.allow:
        if allowed.max_units is not None and allowed.namespace != capacity.namespace:
            theirs = [key for key, pool in pools.items() if pool.namespace == allowed.namespace]
            bounds.append(_Bound(allowed.max_units, theirs))
    return bounds
