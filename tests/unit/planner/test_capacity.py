"""Downstreams in whole plans: who gets how many workers, when they move, and what is said."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jobqueue_operator.planner.decide import plan
from jobqueue_operator.planner.facts import Arrivals, ClassFacts, DownstreamFacts, Facts, Phase, WorkerFacts
from jobqueue_operator.planner.plan import Condition, Plan, Pool, Reason
from jobqueue_operator.planner.wanted import CapacitySpec, PoolSpec, Wanted
from jobqueue_operator.resources import ClassSpec, DownstreamSpec

HUNGRY = ClassFacts(
    ready=5_000, oldest_age=50.0, ages=(50.0,) * 8, arrivals=Arrivals(last=500, before=500, in_20s=2_000, in_60s=6_000)
)
IDLE = ClassFacts()


def pool_spec(name: str, *, namespace: str = "default", most: int = 50, least: int = 0, **capacity: Any) -> PoolSpec:
    spec = ClassSpec.model_validate(
        {
            "name": name,
            "timeout": "30s",
            "concurrency": 4,
            "replicas": {"min": least, "max": most},
            "capacity": {"ref": {"name": "db"}, **capacity},
        }
    )
    return PoolSpec(key=name, spec=spec, revision="r", namespace=namespace, downstream="db")


def asked(*pools: PoolSpec, **spec: Any) -> Wanted:
    capacity = CapacitySpec(name="db", spec=DownstreamSpec.model_validate({"units": 40, **spec}))
    return Wanted(pools=pools, capacities=(capacity,))


def workers(name: str, count: int, phase: Phase = Phase.READY, busy: int = 4, first: int = 0) -> list[WorkerFacts]:
    return [
        WorkerFacts(name=f"{name}-{n}", class_=name, phase=phase, revision="r", busy=busy, slots=4)
        for n in range(first, first + count)
    ]


def seen(classes: dict[str, ClassFacts], *fleets: list[WorkerFacts], in_use: int = 0, limit: int = 40) -> Facts:
    return Facts(
        classes=classes,
        downstreams={"db": (DownstreamFacts(limit=limit, in_use=in_use),)},
        workers=tuple(worker for fleet in fleets for worker in fleet),
    )


def pool(found: Plan, name: str) -> Pool:
    result = found.pool(name)
    assert result is not None
    return result


def test_a_class_alone_gets_what_the_limit_allows_and_says_so() -> None:
    found = plan(asked(pool_spec("a")), seen({"a": HUNGRY}), None, now=1000.0)
    decision = pool(found, "a").decision
    assert (decision.replicas, decision.reason) == (10, Reason.DOWNSTREAM_CAPACITY)
    assert "that is the limit" in decision.message
    assert [r.condition for r in decision.remarks] == [Condition.AT_CAPACITY]
    allocation = found.downstream("db")
    assert allocation is not None
    assert (allocation.limit, allocation.limits, allocation.in_use) == (40, {"": 40}, 0)
    assert (allocation.shares[0].allocated, allocation.shares[0].held_back_by) == (40, ())


def test_a_reserve_is_left_to_others_and_connections_are_the_servers() -> None:
    found = plan(asked(pool_spec("a"), reserve=8), seen({"a": HUNGRY}), None, now=1000.0)
    assert pool(found, "a").decision.replicas == 8
    wanted = asked(pool_spec("a"), units=None, connections=True, reserve=20)
    facts = seen({"a": HUNGRY})
    known = Facts(classes=facts.classes, downstreams=facts.downstreams, connections={"": 97})
    found = plan(wanted, known, None, now=1000.0)
    allocation = found.downstream("db")
    assert allocation is not None
    assert allocation.limit == 77
    # Not known for once: what was known holds.
    again = plan(wanted, facts, found, now=1005.0).downstream("db")
    assert again is not None
    assert again.limit == 77


def test_who_is_held_back_is_told_by_whom() -> None:
    found = plan(asked(pool_spec("a"), pool_spec("b", minUnits=16)), seen({"a": HUNGRY, "b": IDLE}), None, now=1000.0)
    allocation = found.downstream("db")
    assert allocation is not None
    mine = next(s for s in allocation.shares if s.pool == "a")
    assert (mine.allocated, mine.replicas, mine.held_back_by) == (24, 6, ("b",))
    assert "b has 16 (16 reserved)" in mine.message
    assert "b has 16 (16 reserved)" in pool(found, "a").decision.message


def test_units_move_after_two_agreeing_ticks_and_by_draining() -> None:
    wanted = asked(pool_spec("a"), pool_spec("b"))
    fleet = workers("a", 10)
    before = plan(wanted, seen({"a": HUNGRY, "b": IDLE}, fleet, in_use=40), None, now=1000.0)
    assert pool(before, "a").decision.replicas == 10
    once = plan(wanted, seen({"a": HUNGRY, "b": HUNGRY}, fleet, in_use=40), before, now=1005.0)
    assert pool(once, "a").decision.replicas == 10
    assert pool(once, "a").retire == ()
    twice = plan(wanted, seen({"a": HUNGRY, "b": HUNGRY}, fleet, in_use=40), once, now=1010.0)
    assert pool(twice, "a").decision.replicas == 5
    assert len(pool(twice, "a").retire) == 5
    # The other class is given its share now, and may start no more than are free, but for its first.
    assert (pool(twice, "b").decision.replicas, pool(twice, "b").replicas) == (5, 1)
    leaving = [*workers("a", 5), *workers("a", 3, Phase.RETIRED, first=5)]
    later = plan(wanted, seen({"a": HUNGRY, "b": HUNGRY}, leaving, workers("b", 1), in_use=36), twice, now=1015.0)
    assert (pool(later, "b").decision.replicas, pool(later, "b").replicas) == (5, 2)


def test_workers_that_leave_hold_their_units() -> None:
    wanted = asked(pool_spec("a"))
    fleet = [*workers("a", 6), *workers("a", 3, Phase.DRAINING, first=6)]
    found = pool(plan(wanted, seen({"a": HUNGRY}, fleet), None, now=1000.0), "a")
    assert (found.decision.replicas, found.replicas) == (10, 7)


def test_workers_of_a_removed_class_hold_their_units() -> None:
    classes = {"a": HUNGRY, "gone": ClassFacts(downstream="db", charge=4), "other": ClassFacts(charge=4)}
    fleets = workers("a", 4), workers("gone", 3), workers("other", 1)
    found = plan(asked(pool_spec("a")), seen(classes, *fleets), None, now=1000.0)
    assert (pool(found, "a").decision.replicas, pool(found, "a").replicas) == (7, 7)
    assert "workers of removed classes have 12" in pool(found, "a").decision.message
    full = plan(asked(pool_spec("a")), seen(classes, workers("a", 1), workers("gone", 20)), None, now=1000.0)
    assert pool(full, "a").replicas == 1


def test_workers_that_a_platform_is_about_to_make_hold_their_units() -> None:
    hungry = seen({"a": HUNGRY, "b": HUNGRY}, workers("a", 1))
    found = plan(asked(pool_spec("a"), pool_spec("b")), replace(hungry, told={"a": 10}), None, now=1000.0)
    assert pool(found, "b").replicas == 1  # nobody is left with none
    left = plan(asked(pool_spec("a"), pool_spec("b")), replace(hungry, told={"a": 7}), None, now=1000.0)
    assert pool(left, "b").replicas == 3


def test_a_job_that_fits_is_never_left_without_a_worker() -> None:
    found = plan(asked(pool_spec("a"), pool_spec("b"), units=3), seen({"a": HUNGRY, "b": HUNGRY}), None, now=1000.0)
    assert [pool(found, name).replicas for name in ("a", "b")] == [1, 1]


def test_a_last_worker_uses_what_no_whole_one_would() -> None:
    alone = plan(asked(pool_spec("a"), units=42), seen({"a": HUNGRY}), None, now=1000.0)
    assert pool(alone, "a").decision.replicas == 11
    beside = asked(pool_spec("a"), pool_spec("b", minUnits=4), units=42)
    reserved = plan(beside, seen({"a": HUNGRY, "b": IDLE}), None, now=1000.0)
    assert pool(reserved, "a").decision.replicas == 9


def test_a_namespace_gets_no_more_than_its_owner_allows() -> None:
    theirs = pool_spec("a", namespace="guests", weight=1000, priority=9, minUnits=40)
    allow = [{"namespace": "guests", "maxUnits": 12, "minUnits": 4, "weight": 1, "maxPriority": 0}]
    found = plan(asked(theirs, pool_spec("b"), allow=allow), seen({"a": HUNGRY, "b": HUNGRY}), None, now=1000.0)
    assert [pool(found, name).decision.replicas for name in ("a", "b")] == [3, 7]


def test_the_classes_of_a_namespace_share_what_its_owner_allows() -> None:
    theirs = [pool_spec(name, namespace="guests") for name in ("a", "c")]
    allow = [{"namespace": "guests", "maxUnits": 12}]
    found = plan(asked(*theirs, pool_spec("b"), allow=allow), seen(dict.fromkeys("abc", HUNGRY)), None, now=1000.0)
    assert [pool(found, name).decision.replicas for name in ("a", "b", "c")] == [2, 7, 1]
    assert "its namespace guests is allowed 12 units in all" in pool(found, "c").decision.message


def test_a_namespace_that_is_allowed_less_than_one_worker_gets_none() -> None:
    theirs = pool_spec("a", namespace="guests", minUnits=4)
    allow = [{"namespace": "guests", "maxUnits": 3}]
    found = plan(asked(theirs, allow=allow), seen({"a": HUNGRY}), None, now=1000.0)
    assert pool(found, "a").decision.replicas == 0


def test_a_class_that_cannot_be_seen_keeps_and_is_charged_what_it_has() -> None:
    wanted = asked(pool_spec("a"), pool_spec("b"))
    found = plan(wanted, seen({"b": HUNGRY}, workers("a", 6)), None, now=1000.0)
    assert [pool(found, name).decision.replicas for name in ("a", "b")] == [6, 4]
    assert pool(found, "a").decision.reason is Reason.NOT_VISIBLE


facts = st.sampled_from([HUNGRY, IDLE, ClassFacts(ready=30, oldest_age=1.0), ClassFacts(in_flight=7)])


@given(
    st.lists(st.tuples(facts, facts, facts), min_size=1, max_size=6),
    st.integers(1, 60),
    st.lists(st.integers(0, 8), min_size=3, max_size=3),
)
def test_workers_with_all_their_slots_never_exceed_the_limit(
    sequence: list[tuple[ClassFacts, ...]], units: int, reserved: list[int]
) -> None:
    """In a closed loop where leaving workers take two ticks to go; partial workers apart, which the claim holds."""
    names = ("a", "b", "c")
    wanted = asked(*(pool_spec(n, minUnits=m) for n, m in zip(names, reserved, strict=True)), units=units)
    fleets: dict[str, list[WorkerFacts]] = {n: [] for n in names}
    previous = None
    for tick, classes in enumerate(sequence * 3):
        found = plan(
            wanted, seen(dict(zip(names, classes, strict=True)), *fleets.values()), previous, now=1000.0 + 5 * tick
        )
        for name in names:
            fleet, of = fleets[name], pool(found, name)
            stopped = {v.worker for v in of.stop}
            retired = {v.worker for v in of.retire}
            fleet[:] = [
                WorkerFacts(name=w.name, class_=name, phase=_next(w, stopped, retired, of.take_back), revision="r")
                for w in fleet
                if w.phase is not Phase.DRAINING
            ]
            stay = sum(w.phase not in {Phase.RETIRED, Phase.DRAINING} for w in fleet)
            for n in range(of.replicas - stay):
                fleet.append(WorkerFacts(name=f"{name}{tick}-{n}", class_=name, phase=Phase.READY, revision="r"))
        whole = sum(4 * len(fleet) for fleet in fleets.values())
        partial = 4 * sum(bool(fleet) for fleet in fleets.values())
        assert whole <= units + partial
        previous = found


def _next(worker: WorkerFacts, stopped: set[str], retired: set[str], back: tuple[str, ...]) -> Phase:
    if worker.name in stopped:
        return Phase.DRAINING
    if worker.name in retired:
        return Phase.RETIRED
    return Phase.READY if worker.name in back else worker.phase
