"""From facts of each JobQueue to those of all, and back from the plan for all to each one's part."""

from __future__ import annotations

from jobqueue_operator.cluster import views
from jobqueue_operator.planner.decide import plan
from jobqueue_operator.planner.facts import ClassFacts, DownstreamFacts, Facts, Phase, WorkerFacts
from jobqueue_operator.planner.plan import Plan
from jobqueue_operator.planner.wanted import CapacitySpec, PoolSpec, Wanted
from jobqueue_operator.resources import DownstreamSpec
from unit.planner.world import spec

ONE, TWO, FAR = ("a", "shop"), ("a", "shop-b"), ("b", "shop")
CAPACITY = {"ref": {"name": "db"}, "unitsPerJob": 1}


def seen(*classes: str, ready: int = 0, in_use: int = 0, worker: str = "") -> Facts:
    """A JobQueue's facts: all classes of its database, and its own worker."""
    workers = (WorkerFacts(name=worker, class_=classes[0], phase=Phase.READY, revision="r1"),) if worker else ()
    return Facts(
        classes={name: ClassFacts(ready=ready) for name in classes},
        downstreams={"db": (DownstreamFacts(limit=20, in_use=in_use),)},
        workers=workers,
        connections={"": 90},
    )


PARTS = {
    ONE: ("near", seen("email", "sms", in_use=3, worker="one-1")),
    TWO: ("near", seen("email", "sms", in_use=3)),
    FAR: ("far", seen("email", ready=500, in_use=4, worker="far-1")),
}
CLASSES = {ONE: ["email"], TWO: ["sms", "not-there-yet"], FAR: ["email"]}


def test_each_class_is_one_jobqueue_s_and_each_downstream_is_counted_once_a_database() -> None:
    found = views.together(PARTS, CLASSES)
    assert sorted(found.classes) == ["a/shop-b/sms", "a/shop/email", "b/shop/email"]
    assert found.classes["b/shop/email"].ready == 500
    assert sorted(found.downstreams["db"], key=lambda each: each.database) == [
        DownstreamFacts(limit=20, in_use=4, database="far"),
        DownstreamFacts(limit=20, in_use=3, database="near"),
    ]
    assert {worker.name: worker.class_ for worker in found.workers} == {
        "one-1": "a/shop/email",
        "far-1": "b/shop/email",
    }
    assert found.connections == {"near": 90, "far": 90}


def test_a_database_that_cannot_be_seen_takes_nothing_from_others() -> None:
    found = views.together({**PARTS, ONE: ("gone", Facts(visible=False))}, CLASSES)
    assert found.visible
    assert sorted(found.classes) == ["a/shop-b/sms", "b/shop/email"]
    assert "gone" not in found.connections


def planned() -> tuple[Wanted, Plan]:
    pools = tuple(
        PoolSpec(
            key=views.pool_key(queue, name),
            spec=spec(name, capacity=CAPACITY),
            revision="r1",
            namespace=queue[0],
            queue=queue[1],
            database=PARTS[queue][0],
            downstream="db",
        )
        for queue, names in CLASSES.items()
        for name in names
    )
    wanted = Wanted(pools=pools, capacities=(CapacitySpec(name="db", spec=DownstreamSpec(units=20)),))
    return wanted, plan(wanted, views.together(PARTS, CLASSES), Plan(()), now=1_764_547_200.0, tick=5.0)


def test_together_planned_and_parted_each_has_its_own_and_nothing_is_lost() -> None:
    _, made = planned()
    parts = {queue: views.part(made, queue, PARTS[queue][0]) for queue in PARTS}
    assert {queue: [pool.class_ for pool in part.pools] for queue, part in parts.items()} == CLASSES
    back = [views.renamed(p, views.pool_key(queue, p.class_)) for queue, part in parts.items() for p in part.pools]
    assert back == list(made.pools)
    far = made.pool("b/shop/email")
    assert far is not None
    assert far.decision.replicas > 0


def test_each_database_is_told_its_own_limit_of_a_downstream() -> None:
    _, made = planned()
    whole = made.downstreams[0].limits
    assert whole.keys() == {"near", "far"}
    for queue, (database, _) in PARTS.items():
        assert [each.limits for each in views.part(made, queue, database).downstreams] == [{"": whole[database]}]
    assert [each.limits for each in views.part(made, ONE, "another").downstreams] == [{}]


def test_what_concerns_one_database_has_the_classes_of_all_its_jobqueues_by_name() -> None:
    wanted, made = views.local(*planned(), [ONE, TWO])
    assert [pool.key for pool in wanted.pools] == ["email", "sms", "not-there-yet"]
    assert [pool.class_ for pool in made.pools] == ["email", "sms", "not-there-yet"]
