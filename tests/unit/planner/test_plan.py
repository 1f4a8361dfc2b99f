from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobqueue_operator.planner.decide import plan
from jobqueue_operator.planner.facts import ClassFacts, Facts, Phase, WorkerFacts
from jobqueue_operator.planner.memory import ClassMemory
from jobqueue_operator.planner.plan import Decision, Plan, Pool, Reason
from jobqueue_operator.planner.wanted import PoolSpec, Wanted
from jobqueue_operator.resources import ClassSpec


def spec(**fields: Any) -> ClassSpec:
    return ClassSpec.model_validate({"name": "email", "timeout": "30s", **fields})


def asked(class_: ClassSpec) -> Wanted:
    return Wanted(pools=(PoolSpec(key="email", spec=class_, revision="new"),))


def worker(name: str, phase: Phase = Phase.READY, revision: str = "new", **fields: Any) -> WorkerFacts:
    return WorkerFacts(name=name, class_="email", phase=phase, revision=revision, **fields)


def pool(
    class_: ClassSpec,
    *workers: WorkerFacts,
    seen: ClassFacts | None = None,
    previous: Pool | None = None,
    visible: bool = True,
    now: float = 100.0,
) -> Pool:
    facts = Facts(visible=visible, classes={"email": seen or ClassFacts()} if visible else {}, workers=workers)
    before = Plan((previous,)) if previous is not None else None
    found = plan(asked(class_), facts, before, now=now).pool("email")
    assert found is not None
    return found


def test_the_minimum_runs_with_its_reason() -> None:
    decision = pool(spec(replicas={"min": 3})).decision
    assert (decision.replicas, decision.reason, decision.message) == (
        3,
        "MinimumReplicas",
        "replicas.min 3; the demand is 0",
    )


def test_paused_workers_stay() -> None:
    for found in (pool(spec(paused=True)), pool(spec(), seen=ClassFacts(paused=True, ready=5))):
        assert (found.decision.replicas, found.decision.reason) == (1, Reason.PAUSED)


def test_a_blind_tick_holds_what_was_and_stops_nobody() -> None:
    held = Pool("email", "new", Decision(4, Reason.MINIMUM_REPLICAS, ""), memory=ClassMemory(busy_at=3.0))
    found = pool(spec(), *(worker(f"w{i}", revision="old") for i in range(4)), previous=held, visible=False)
    assert (found.decision.replicas, found.decision.reason) == (4, Reason.NOT_VISIBLE)
    assert found.stop == ()
    assert found.rollout is None


def test_a_class_at_zero_wakes_for_work_and_sleeps_after_it() -> None:
    class_ = spec(replicas={"min": 0, "idleAfter": "60s"})
    assert pool(class_).decision.replicas == 0
    woken = pool(class_, seen=ClassFacts(ready=7), now=100)
    decision = woken.decision
    assert (decision.replicas, decision.reason, decision.message) == (
        1,
        "Demand",
        "7 ready, oldest 0s of 60s, 0 in flight, 0.0/s x 1s",
    )
    assert pool(class_, seen=ClassFacts(in_flight=1)).decision.replicas == 1
    assert pool(class_, previous=woken, now=159).decision.replicas == 1
    assert pool(class_, previous=woken, now=160).decision.replicas == 0


def test_who_is_too_many_goes_not_ready_first_then_idle_then_the_least_busy() -> None:
    workers = [
        worker("busy", busy=3, age=1),
        worker("idle-old", age=50),
        worker("idle-young", age=5),
        worker("starting", Phase.STARTING),
        worker("gone", Phase.DRAINING),
    ]
    found = pool(spec(paused=True), *workers)
    assert [(v.worker, v.reason) for v in found.stop] == [("starting", "NotReadyFirst")]
    assert [(v.worker, v.reason) for v in found.retire] == [
        ("idle-young", "IdleFirst"),
        ("idle-old", "IdleFirst"),
    ]
    assert "retiring idle-young, idle-old; draining starting" in found.why


def test_a_class_that_is_no_longer_asked_for_goes() -> None:
    facts = Facts(workers=(WorkerFacts(name="w", class_="gone", phase=Phase.READY, revision="x"),))
    found = plan(Wanted(), facts, None, now=0).pool("gone")
    assert found is not None
    assert (found.decision.replicas, found.decision.reason) == (0, Reason.REMOVED)
    assert [v.worker for v in found.stop] == ["w"]


@pytest.mark.parametrize(
    ("workers", "replaced", "reason"),
    [
        ([worker("a", revision="old"), worker("b", revision="old", busy=2)], "a", Reason.ROLLING),
        ([worker("a", revision="old"), worker("b", Phase.DRAINING, "old")], None, Reason.WAITING_FOR_READY),
        ([worker("a", revision="old"), worker("b", Phase.STARTING)], None, Reason.WAITING_FOR_READY),
        ([worker("a", revision="old")], None, Reason.WAITING_FOR_READY),
        ([worker("a", revision="old"), worker("b", Phase.BACKOFF)], None, Reason.STALLED),
        ([worker("a", revision="old"), worker("b", Phase.STARTING, last_error="exit status 2")], None, Reason.STALLED),
        ([worker("a", revision="old"), worker("b", Phase.BACKOFF, "old")], "b", Reason.ROLLING),
        ([worker("a", revision="old"), worker("b")], "a", Reason.ROLLING),
    ],
)
def test_a_rollout_takes_one_step_at_a_time(workers: list[WorkerFacts], replaced: str | None, reason: Reason) -> None:
    step = pool(spec(replicas={"min": 2}), *workers).rollout
    assert step is not None
    assert (step.replace.worker if step.replace else None, step.reason) == (replaced, reason)


def test_no_rollout_when_all_are_new() -> None:
    assert pool(spec(replicas={"min": 2}), worker("a"), worker("b")).rollout is None


def test_an_old_worker_that_is_too_many_goes_without_being_replaced() -> None:
    found = pool(spec(paused=True), worker("new-one"), worker("old-one", revision="old", busy=9))
    assert [v.worker for v in found.retire] == ["old-one"]
    assert found.rollout is None


phases = st.sampled_from(list(Phase))
fleets = st.lists(st.tuples(phases, st.sampled_from(["old", "new"]), st.integers(0, 5)), max_size=8)


@given(fleets, st.integers(0, 8))
@example([(Phase.READY, "old", 0)] * 3 + [(Phase.RETIRED, "new", 1)], 3)
def test_a_step_never_leaves_less_than_all_but_one_able_to_work(fleet: list[Any], replicas: int) -> None:
    workers = [worker(f"w{i}", phase, rev, busy=busy) for i, (phase, rev, busy) in enumerate(fleet)]
    found = pool(spec(replicas={"min": replicas}), *workers, seen=ClassFacts(paused=True))
    going = {v.worker for v in (*found.stop, *found.retire)}
    if found.rollout is not None and found.rollout.replace is not None:
        going.add(found.rollout.replace.worker)
    assert going <= {w.name for w in workers if w.phase is not Phase.DRAINING}
    able = [w for w in workers if w.phase not in {Phase.RETIRED, Phase.DRAINING}]
    assert len([w for w in able if w.name not in going]) >= min(replicas, len(able)) - 1
    ready_lost = sum(w.phase is Phase.READY for w in workers if w.name in going)
    # A retired one is beside those that are asked for, and nothing that a rollout waits for.
    down = [w for w in workers if w.phase not in {Phase.READY, Phase.RETIRED} and w.name not in going]
    if not found.stop and found.rollout is not None and ready_lost:
        assert all(w.revision == "old" for w in down)


def test_the_plan_depends_on_nothing_but_its_arguments() -> None:
    facts = Facts(classes={"email": ClassFacts(ready=3)}, workers=(worker("a"), worker("b", revision="old")))
    one, two = (plan(asked(spec()), facts, None, now=5.0) for _ in range(2))
    assert one == two
