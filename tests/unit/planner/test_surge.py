"""A rollout under a downstream: a worker beside the one it replaces only where units are to spare."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobqueue_operator.planner.decide import plan
from jobqueue_operator.planner.facts import ClassFacts, DownstreamFacts, Facts, Phase, WorkerFacts
from jobqueue_operator.planner.plan import Plan
from jobqueue_operator.planner.wanted import CapacitySpec, PoolSpec, Wanted
from jobqueue_operator.resources import ClassSpec, DownstreamSpec

CHARGE = 4
"""Units of one worker in these tests: four slots."""
IDLE = ClassFacts()


def pool_spec(name: str, least: int = 0, *, capacity: bool = True, surges: bool = True, **fields: Any) -> PoolSpec:
    given_ = {"name": name, "timeout": "30s", "concurrency": CHARGE, "replicas": {"min": least, "max": 50}}
    spec = ClassSpec.model_validate(given_ | ({"capacity": {"ref": {"name": "db"}}} if capacity else {}))
    downstream = "db" if capacity else None
    return PoolSpec(key=name, spec=spec, revision="new", downstream=downstream, surges=surges, **fields)


def asked(*pools: PoolSpec, units: int, **spec: Any) -> Wanted:
    capacity = CapacitySpec(name="db", spec=DownstreamSpec.model_validate({"units": units, **spec}))
    return Wanted(pools=pools, capacities=(capacity,))


def fleet(name: str, *parts: tuple[int, str, Phase]) -> list[WorkerFacts]:
    return [
        WorkerFacts(name=f"{name}-{part}-{n}", class_=name, phase=phase, revision=revision, slots=CHARGE)
        for part, (count, revision, phase) in enumerate(parts)
        for n in range(count)
    ]


def seen(wanted: Wanted, *fleets: list[WorkerFacts], in_use: int = 0, limits: dict[str, int] | None = None) -> Facts:
    limits = limits or {"": wanted.capacities[0].spec.units or 0}
    return Facts(
        classes={pool.key: IDLE for pool in wanted.pools},
        downstreams={
            "db": tuple(DownstreamFacts(limit=limit, in_use=in_use, database=name) for name, limit in limits.items())
        },
        workers=tuple(worker for each in fleets for worker in each),
    )


def surges(found: Plan) -> set[str]:
    return {pool.class_ for pool in found.pools if pool.surge}


OLD, NEW = (2, "old", Phase.READY), (1, "new", Phase.READY)


@pytest.mark.parametrize(
    ("units", "workers", "expected"),
    [
        (12, fleet("a", OLD), True),
        (11, fleet("a", OLD), False),  # two have eight
        (15, fleet("a", OLD, (1, "older", Phase.DRAINING)), False),  # whoever leaves has its units till the end
        (16, fleet("a", OLD, (1, "older", Phase.DRAINING)), True),
        (15, fleet("a", OLD, (1, "new", Phase.STARTING)), False),  # an operator that was started anew
        (16, fleet("a", OLD, (1, "new", Phase.STARTING)), True),
        (100, fleet("a", (2, "new", Phase.READY)), False),  # no rollout
        (100, fleet("a", (2, "new", Phase.READY), (1, "old", Phase.DRAINING)), False),  # none any more
        (100, fleet("a", (2, "new", Phase.READY), (1, "old", Phase.RETIRED)), False),
        (100, [], False),
    ],
)
def test_a_rollout_begins_with_a_surge_where_one_more_fits(
    units: int,
    workers: list[WorkerFacts],
    expected: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    wanted = asked(pool_spec("a", 2), units=units)
    assert surges(plan(wanted, seen(wanted, workers), None, now=1000.0)) == ({"a"} if expected else set())


@pytest.mark.parametrize(("units", "expected"), [(19, set()), (20, {"a"}), (23, {"a"}), (24, {"a", "b"})])
def test_what_others_are_granted_or_start_is_not_to_spare(units: int, expected: set[str]) -> None:
    """Class b is granted two workers and has one yet; two rollouts that begin need a worker's units each."""
    wanted = asked(pool_spec("a", 2), pool_spec("b", 2), units=units)
    facts = seen(wanted, fleet("a", OLD), fleet("b", (1, "old", Phase.READY)))
    assert surges(plan(wanted, facts, None, now=1000.0)) == expected


def test_units_that_workers_in_no_manifest_use_are_not_to_spare() -> None:
    wanted = asked(pool_spec("a", 2), units=12)
    assert surges(plan(wanted, seen(wanted, fleet("a", OLD), in_use=8), None, now=1000.0)) == {"a"}
    assert surges(plan(wanted, seen(wanted, fleet("a", OLD), in_use=9), None, now=1000.0)) == set()
    facts = seen(wanted, fleet("a", OLD), fleet("gone", (1, "old", Phase.READY)))
    charged = replace(facts, classes={**facts.classes, "gone": ClassFacts(downstream="db", charge=1)})
    assert surges(plan(wanted, facts, None, now=1000.0)) == {"a"}
    assert surges(plan(wanted, charged, None, now=1000.0)) == set()


def test_what_a_namespace_is_allowed_holds_too() -> None:
    for units, expected in ((11, set()), (12, {"a"})):
        wanted = asked(pool_spec("a", 2, namespace="mail"), units=100, allow=[{"namespace": "mail", "maxUnits": units}])
        assert surges(plan(wanted, seen(wanted, fleet("a", OLD)), None, now=1000.0)) == expected


def test_what_a_database_is_told_holds_too() -> None:
    wanted = asked(pool_spec("a", 2, database="x"), pool_spec("b", 2, database="y"), units=40)
    fleets = fleet("a", OLD), fleet("b", (2, "new", Phase.READY))
    even = plan(wanted, seen(wanted, *fleets, limits={"x": 20, "y": 20}), None, now=1000.0)
    assert surges(even) == {"a"}
    uneven = plan(wanted, seen(wanted, *fleets, limits={"x": 8, "y": 32}), None, now=1000.0)
    assert surges(uneven) == set()


def test_one_that_cannot_be_seen_does_not_surge() -> None:
    wanted = asked(pool_spec("a", 2), units=100)
    facts = seen(wanted, fleet("a", OLD))
    assert surges(plan(wanted, replace(facts, classes={}), None, now=1000.0)) == set()
    assert surges(plan(wanted, replace(facts, downstreams={}), None, now=1000.0)) == set()


def test_without_a_downstream_any_rollout_may_where_the_platform_can() -> None:
    wanted = Wanted(pools=(pool_spec("a", 2, capacity=False), pool_spec("b", 2, capacity=False, surges=False)))
    facts = Facts(classes={"a": IDLE, "b": IDLE}, workers=(*fleet("a", OLD), *fleet("b", OLD)))
    assert surges(plan(wanted, facts, None, now=1000.0)) == {"a"}
    local = asked(pool_spec("a", 2, surges=False), units=100)
    assert surges(plan(local, seen(local, fleet("a", OLD)), None, now=1000.0)) == set()


def test_the_manner_of_a_rollout_changes_once_at_most() -> None:
    wanted = asked(pool_spec("a", 2), pool_spec("b"), units=12)
    begun = plan(wanted, seen(wanted, fleet("a", OLD)), None, now=1000.0)
    assert surges(begun) == {"a"}
    beside = fleet("a", OLD, (1, "new", Phase.STARTING))
    on = plan(wanted, seen(wanted, beside), begun, now=1005.0)
    assert surges(on) == {"a"}  # the worker that it started takes what it spared
    more = fleet("b", (1, "new", Phase.STARTING))
    taken = plan(wanted, seen(wanted, beside, more), on, now=1010.0)
    assert surges(taken) == set()
    again = plan(wanted, seen(wanted, fleet("a", (1, "old", Phase.READY), NEW)), taken, now=1015.0)
    assert surges(again) == set()  # there would be room, but not in the middle of it
    another = replace(wanted, pools=(replace(wanted.pools[0], revision="newer"), wanted.pools[1]))
    assert surges(plan(another, seen(wanted, fleet("a", OLD)), again, now=1020.0)) == {"a"}


def test_a_rollout_that_begins_takes_nothing_from_one_that_surges() -> None:
    wanted = asked(pool_spec("a", 2), pool_spec("b", 2), units=20)
    facts = seen(wanted, fleet("a", OLD), fleet("b", OLD))
    first = plan(wanted, facts, None, now=1000.0)
    assert surges(first) == {"a"}
    only_b = [replace(p, surge=p.class_ == "b", revision="new" if p.class_ == "b" else "old") for p in first.pools]
    assert surges(plan(wanted, facts, Plan(tuple(only_b), first.downstreams), now=1005.0)) == {"b"}


def test_the_worker_beside_is_no_surplus() -> None:
    """No old worker is fenced for it: it goes when the new one is ready, and is as good as before until then."""
    wanted = asked(pool_spec("a", 2), units=12)
    begun = plan(wanted, seen(wanted, fleet("a", OLD)), None, now=1000.0)
    for count, retired in ((1, 0), (2, 1)):
        facts = seen(wanted, fleet("a", OLD, (count, "new", Phase.READY)))
        wide = replace(wanted, capacities=asked(units=100).capacities)
        found = plan(wide, facts, begun, now=1005.0).pool("a")
        assert found is not None
        assert (found.surge, len(found.retire)) == (True, retired)


fleets = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(["old", "new"]), st.sampled_from(list(Phase))), max_size=4
)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from("abc"), st.tuples(fleets, st.integers(0, 4), st.booleans()), min_size=1),
    st.integers(4, 60),
    st.integers(0, 60),
)
def test_with_every_worker_that_a_surge_may_add_the_limit_holds(
    drawn: dict[str, tuple[list[tuple[int, str, Phase]], int, bool]], units: int, in_use: int
) -> None:
    wanted = asked(*(pool_spec(name, least) for name, (_, least, _) in sorted(drawn.items())), units=units)
    there = {name: fleet(name, *parts) for name, (parts, _, _) in drawn.items()}
    facts = seen(wanted, *there.values(), in_use=in_use)
    first = plan(wanted, facts, None, now=1000.0)
    flipped = [
        replace(pool, surge=drawn[pool.class_][2], revision="new" if drawn[pool.class_][2] else pool.revision)
        for pool in first.pools
    ]
    for found, had in (
        (first, set()),
        (plan(wanted, facts, Plan(tuple(flipped), first.downstreams), now=1005.0), None),
    ):
        (allocation,) = found.downstreams
        granted = {share.pool: share.allocated for share in allocation.shares}
        on = surges(found)
        if had is None:
            assert on <= {pool.class_ for pool in flipped if pool.surge}
        total = 0
        for name, workers in there.items():
            # One more than is decided, which may be there already where the rollout goes on with one.
            usual, exists = granted.get(name, 0), len(workers) * CHARGE
            one = CHARGE if name in on else 0
            total += max(usual + one, exists if had is None else exists + one)
        if on:
            assert total <= allocation.limit
            assert in_use <= allocation.limit
