from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobqueue_operator.planner import sensitivity
from jobqueue_operator.planner.decide import plan
from jobqueue_operator.planner.explain import explain
from jobqueue_operator.planner.facts import Facts
from jobqueue_operator.planner.plan import Plan, Reason
from jobqueue_operator.planner.record import Tick
from jobqueue_operator.planner.sensitivity import Change, changes
from jobqueue_operator.planner.wanted import CapacitySpec, Wanted
from jobqueue_operator.resources import DownstreamSpec
from jobqueue_operator.resources.downstream import Adaptive
from unit.planner.arbitrary import observed, wanteds
from unit.planner.world import EPOCH, Class, asked, run, spec

REPLICAS = {"min": 1, "max": 20}
CAPACITY = {"ref": {"name": "db"}, "unitsPerJob": 1}


def busy(ticks: int = 45, **fields: Any) -> list[Tick]:
    """Thirty quiet ticks, then twelve times the arrivals."""
    return run([Class(spec(**{"replicas": REPLICAS, **fields}), [5.0] * 30 + [60.0])], ticks)


def find(found: tuple[Change, ...], beginning: str) -> Change:
    (one,) = [change for change in found if change.what.startswith(beginning)]
    return one


def decide(tick: Tick, facts: Facts | None = None, wanted: Wanted | None = None) -> int:
    """The number of workers after a few ticks of the same."""
    previous = tick.previous
    for count in range(sensitivity.TICKS):
        now = tick.now + count * tick.tick
        previous = plan(wanted or tick.wanted, facts or tick.facts, previous, now=now, tick=tick.tick)
    assert previous is not None
    return previous.pools[0].decision.replicas


def with_ready(tick: Tick, ready: int) -> Facts:
    seen = tick.facts.classes["email"]
    return replace(tick.facts, classes={"email": replace(seen, ready=ready, ages=seen.ages or (0.0,) * 8)})


def test_the_backlog_that_would_have_one_more_worker_is_the_smallest_such() -> None:
    tick = busy()[-1]
    (what, replicas) = next((c.what, c.replicas) for c in changes(tick, "email") if "ready jobs" in c.what)
    count = int(what.split()[0])
    base = decide(tick)
    assert what == f"{count} ready jobs instead of {tick.facts.classes['email'].ready}"
    assert decide(tick, with_ready(tick, count)) == replicas > base
    assert decide(tick, with_ready(tick, count - 1)) == base


def test_at_the_cap_no_backlog_changes_anything_and_the_cap_does() -> None:
    tick = busy(replicas={"min": 1, "max": 3})[-1]
    found = changes(tick, "email")
    assert find(found, "any number of ready jobs") == Change(
        what="any number of ready jobs", replicas=3, reason=Reason.MAXIMUM_REPLICAS
    )
    assert find(found, "no replicas.max 3").replicas > 3


def test_fewer_as_time_goes_by_comes_when_the_planner_says_so() -> None:
    made = run([Class(spec(replicas=REPLICAS), [60.0] * 40 + [5.0])], 60)
    tick = next(t for t in made[41:] if t.plan.pools[0].decision.reason is Reason.SCALE_IN_WINDOW)
    (change,) = [c for c in changes(tick, "email") if c.after is not None]
    assert change.after is not None
    assert change.after > 0
    assert change.what == f"the same for {change.after:.0f}s"
    held = tick.plan.pools[0].decision.replicas
    previous, now = plan(tick.wanted, tick.facts, tick.previous, now=tick.now, tick=5.0), tick.now
    while previous.pools[0].decision.replicas == held:
        now += 5.0
        previous = plan(tick.wanted, tick.facts, previous, now=now, tick=5.0)
    assert now - tick.now == change.after
    assert change.replicas == previous.pools[0].decision.replicas < held


def test_a_target_that_leads_where_the_windows_lead_anyway_changes_nothing() -> None:
    made = run([Class(spec(replicas=REPLICAS), [60.0] * 40 + [5.0])], 60)
    tick = next(t for t in made[41:] if t.plan.pools[0].decision.reason is Reason.SCALE_IN_WINDOW)
    assert find(changes(tick, "email"), "target 2m instead of 1m").replicas == tick.plan.pools[0].decision.replicas


def test_what_stays_the_same_for_long_is_said() -> None:
    tick = run([Class(spec(replicas=REPLICAS), [60.0])], 100)[-1]
    (change,) = [c for c in changes(tick, "email") if c.after is not None]
    assert (change.what, change.replicas) == ("the same for 30m", tick.plan.pools[0].decision.replicas)


def test_load_and_targets() -> None:
    tick = busy()[-1]
    found = changes(tick, "email")
    base = tick.plan.pools[0].decision.replicas
    assert find(found, "twice the arrivals").replicas > 1.5 * base
    assert find(found, "target 30s instead of 1m").replicas >= base
    assert find(found, "target 2m instead of 1m").replicas <= base


def test_a_minimum_that_binds_is_taken_away() -> None:
    tick = run([Class(spec(replicas={"min": 4}), [5.0])], 50)[-1]
    assert find(changes(tick, "email"), "no minimum (replicas.min 4)").replicas == 1


def test_a_pause_is_lifted() -> None:
    tick = busy(paused=True)[-1]
    assert tick.plan.pools[0].decision.reason is Reason.PAUSED
    assert find(changes(tick, "email"), "not paused").replicas > 1


def test_the_units_that_would_give_one_more_worker_are_the_fewest_such() -> None:
    made = run([Class(spec(replicas=REPLICAS, capacity=CAPACITY), [60.0])], 40, units=30)
    tick = made[-1]
    found = next(c for c in changes(tick, "email") if "units of db" in c.what)
    assert tick.plan.pools[0].decision.replicas == 3
    assert (found.what, found.replicas) == ("31 units of db instead of 30", 4)


def test_units_are_counted_without_the_reserve() -> None:
    tick = run([Class(spec(replicas=REPLICAS, capacity=CAPACITY), [60.0])], 40, units=30)[-1]
    granted = CapacitySpec(name="db", spec=DownstreamSpec(connections=True, reserve=7))
    wanted, facts = replace(tick.wanted, capacities=(granted,)), replace(tick.facts, connections={"": 37})
    made = plan(wanted, facts, tick.previous, now=tick.now, tick=5.0)
    found = changes(replace(tick, wanted=wanted, facts=facts, plan=made), "email")
    assert find(found, "31 units of db instead of 30").replicas == 4


def test_a_limit_that_was_lowered_is_put_back() -> None:
    tick = run([Class(spec(replicas=REPLICAS, capacity=CAPACITY), [60.0])], 40, units=30)[-1]
    wanted = replace(
        tick.wanted,
        capacities=(CapacitySpec(name="db", spec=DownstreamSpec(units=30, adaptive=Adaptive(enabled=True))),),
    )
    (before,) = tick.plan.downstreams
    lowered = replace(before, memory=replace(before.memory, working=10, lowered_at=tick.now))
    previous = replace(tick.plan, downstreams=(lowered,))
    made = plan(wanted, tick.facts, previous, now=tick.now, tick=5.0)
    found = changes(replace(tick, wanted=wanted, previous=previous, plan=made), "email")
    assert made.pools[0].decision.replicas == 1
    assert find(found, "all 30 units of db instead of the 10 that it bears now").replicas == 3


def test_only_pools_that_share_a_downstream_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for: set[frozenset[str]] = set()

    def watched(wanted: Wanted, *arguments: Any, **named: Any) -> Plan:
        asked_for.add(frozenset(pool.key for pool in wanted.pools))
        return plan(wanted, *arguments, **named)

    monkeypatch.setattr(sensitivity, "plan", watched)
    classes = [Class(spec(n, capacity=c), [3.0]) for n, c in (("a", CAPACITY), ("b", CAPACITY), ("c", None))]
    tick = run(classes, 5, units=50)[-1]
    changes(tick, "a")
    changes(tick, "c")
    assert asked_for == {frozenset({"a", "b"}), frozenset({"c"})}


def test_an_explanation_holds_everything_that_belongs_to_a_decision() -> None:
    classes = [
        Class(spec(replicas=REPLICAS, capacity=CAPACITY), [60.0]),
        Class(spec("invoice", replicas=REPLICAS), [1.0]),
    ]
    tick = run(classes, 40, units=30)[-1]
    found = explain(tick, "email")
    assert found is not None
    assert (found.now, found.tick, found.class_, found.visible) == (tick.now, 5.0, "email", True)
    assert found.facts == tick.facts.classes["email"]
    assert found.workers == {"Ready": 3}
    assert found.pool == tick.plan.pools[0]
    assert found.in_use == tick.facts.downstreams["db"]
    assert found.drain == "drain.timeout 35s + flush 5s + CLI start 3s + margin 5s = 48s"
    assert found.repeats is True
    other = explain(tick, "invoice")
    assert other is not None
    assert (other.allocation, other.share, other.in_use) == (None, None, ())


def test_a_decision_that_this_release_would_not_make_is_told_apart() -> None:
    tick = busy()[-1]
    pool = tick.plan.pools[0]
    other = replace(tick, plan=Plan((replace(pool, decision=replace(pool.decision, replicas=13)),)))
    found = explain(other, "email")
    assert found is not None
    assert found.repeats is False
    found = explain(replace(tick, previous=None, linked=False), "email")
    assert found is not None
    assert found.repeats is None


def test_a_class_that_is_gone_is_explained_and_one_that_never_was_is_not() -> None:
    last = busy(5)[-1]
    tick = replace(last, wanted=asked(), plan=plan(asked(), last.facts, last.previous, now=last.now, tick=5.0))
    found = explain(tick, "email")
    assert found is not None
    assert (found.pool.decision.reason, found.drain, found.changes) == (Reason.REMOVED, "", ())
    assert explain(tick, "invoice") is None


@settings(max_examples=25)
@given(observed, wanteds, st.sampled_from([1.0, 5.0]))
def test_nothing_that_can_be_observed_is_fatal(facts: Facts, wanted: Wanted, tick: float) -> None:
    made = plan(wanted, facts, None, now=EPOCH, tick=tick)
    for pool in made.pools[:2]:
        found = explain(Tick(now=EPOCH, tick=tick, wanted=wanted, facts=facts, plan=made), pool.class_)
        assert found is not None
        assert found.repeats
