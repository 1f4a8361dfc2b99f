"""An explanation in words and in JSON: whatever was recorded, and what there is to say of units and of who goes."""

import json
from dataclasses import replace

from hypothesis import given, settings

from jobqueue_operator.explain import answer, words
from jobqueue_operator.planner.decide import plan
from jobqueue_operator.planner.explain import Explanation, explain
from jobqueue_operator.planner.facts import Facts
from jobqueue_operator.planner.plan import Plan
from jobqueue_operator.planner.record import Remarks, Tick
from jobqueue_operator.planner.wanted import Wanted
from unit.planner.arbitrary import observed, plans, wanteds
from unit.planner.world import EPOCH, Class, run, spec


def said(found: Explanation | None) -> str:
    assert found is not None
    return "\n".join(words.lines(found))


@settings(max_examples=25)
@given(observed, wanteds, plans)
def test_anything_that_a_record_can_hold_can_be_said(facts: Facts, wanted: Wanted, recorded: Plan) -> None:
    for made in (plan(wanted, facts, None, now=EPOCH, tick=5.0), recorded):
        tick = Tick(now=EPOCH, tick=5.0, wanted=wanted, facts=facts, plan=made)
        for pool in tick.plan.pools:
            found = explain(tick, pool.class_)
            assert all(line.isprintable() for line in said(found).split("\n"))
            assert found is not None
            json.dumps(answer.explanations([found], source="record", remarks=Remarks()), allow_nan=False)


def test_who_shares_a_downstream_and_who_waits_for_whom() -> None:
    capacity = {"ref": {"name": "db"}, "unitsPerJob": 1}
    classes = [Class(spec(n, replicas={"min": 1, "max": 20}, capacity=capacity), [60.0]) for n in ("email", "invoice")]
    tick = run(classes, 40, units=40)[-1]
    text = said(explain(tick, "email"))
    assert "\ndownstream db\n  units" in text
    assert "  email                 asks 200, gets 20 (reserved 10): 2 workers; held back by invoice <\n" in text
    assert "  wait for what it has  invoice" in text
    assert "  DownstreamCapacity  2 workers: " in text


def test_workers_that_leave_hold_their_units_until_they_are_gone() -> None:
    capacity = {"ref": {"name": "db"}, "unitsPerJob": 1}
    tick = run([Class(spec(replicas={"min": 1, "max": 20}, capacity=capacity), [60.0])], 40, units=40)[-1]
    (pool,) = tick.plan.pools
    text = said(explain(replace(tick, plan=replace(tick.plan, pools=(replace(pool, room=1),))), "email"))
    assert "\n  1 worker now: more when those that leave have given their units back\n" in text


def test_who_goes_and_when_the_rest_is_due() -> None:
    ticks = run([Class(spec(replicas={"min": 1, "max": 20}), [60.0] * 40 + [5.0])], 60)
    tick = next(t for t in ticks if t.plan.pools[0].retire)
    seen = replace(tick.facts.classes["email"], scheduled=9, due_soon=((1.0, 0), (10.0, 4), (30.0, 4), (60.0, 7)))
    text = said(explain(replace(tick, facts=replace(tick.facts, classes={"email": seen})), "email"))
    assert "\nwho goes\n  retire  email-" in text
    assert "  scheduled  9; due within 10s: 4, 1m00s: 7\n" in text
