import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobqueue_operator.planner.facts import Arrivals, Facts
from jobqueue_operator.planner.plan import Plan
from jobqueue_operator.planner.record import Tick
from jobqueue_operator.planner.replay import Comparison, Outcome, replay
from jobqueue_operator.planner.score import Differences
from unit.planner.arbitrary import numbers, observed, wanteds
from unit.planner.world import EPOCH, Class, asked, run, spec

RATES = [5.0] * 30 + [60.0] * 60 + [20.0]
REPLICAS = {"min": 1, "max": 20}


def recorded(ticks: int = 200, **fields: Any) -> list[Tick]:
    return run([Class(spec(replicas=REPLICAS, **fields), RATES)], ticks)


def only(found: Outcome) -> Comparison:
    (one,) = found.classes
    return one


def test_the_same_spec_changes_nothing_and_the_model_is_near_what_was_recorded() -> None:
    found = replay(recorded(), asked(spec(replicas=REPLICAS)))
    one = only(found)
    assert (found.ticks, found.gaps, found.remarks) == (200, 0, ())
    assert one.new == one.old
    assert one.differences == ()
    assert one.recorded.seconds == one.old.seconds == 199 * 5
    assert one.old.worker_seconds == pytest.approx(one.recorded.worker_seconds, rel=0.05)
    assert one.old.max_age == pytest.approx(one.recorded.max_age, abs=5)
    assert one.old.peak == one.recorded.peak
    assert one.recorded.actions > 2


def test_a_fixed_number_of_workers_costs_what_it_costs() -> None:
    one = only(replay(recorded(), asked(spec(replicas={"min": 9, "max": 9}))))
    # One is there from the start; the other eight come with the first decision.
    assert one.new.worker_seconds == pytest.approx(9 * 199 * 5, abs=9 * 5)
    assert (one.new.peak, one.new.actions) == (9, 0)
    (most, *_) = one.differences
    assert most.new > most.old


def test_a_cap_that_is_too_low_is_seen_in_age_and_in_time_at_the_cap() -> None:
    one = only(replay(recorded(), asked(spec(replicas={"min": 1, "max": 3}))))
    assert one.new.peak == 3
    assert one.new.share_over_target > 0.3
    assert one.new.max_age > 60 > one.old.max_age
    assert one.new.at_cap > 100
    assert one.old.at_cap == 0


def test_a_lower_target_costs_more_and_is_older_less() -> None:
    load = [5.0] * 10 + [200.0] * 4 + [5.0] * 40
    made = run([Class(spec(replicas={"min": 1, "max": 50}), load)], 60)
    one = only(replay(made, asked(spec(replicas={"min": 1, "max": 50}, target={"oldestMessageAge": "20s"}))))
    assert (one.old.target, one.new.target) == (60, 20)
    assert one.new.max_age < one.old.max_age
    assert one.new.worker_seconds > one.old.worker_seconds


def test_units_hold_a_class_down_and_more_units_let_it_go() -> None:
    capacity = {"ref": {"name": "db"}, "unitsPerJob": 1}
    class_ = spec(replicas={"min": 0, "max": 50}, capacity=capacity)
    made = run([Class(class_, RATES)], 150, units=30)
    one = only(replay(made, asked(class_, units=100)))
    assert one.old.peak == 3
    assert one.new.peak == pytest.approx(7, abs=1)
    assert one.recorded.at_cap > 100
    assert one.old.at_cap > 100
    assert one.new.at_cap == 0


def test_the_claims_hold_to_the_units_whatever_slots_there_are() -> None:
    capacity = {"ref": {"name": "db"}, "unitsPerJob": 1}
    class_ = spec(replicas={"min": 4, "max": 4}, capacity=capacity)
    made = run([Class(class_, [38.0])], 100, units=40)
    one = only(replay(made, asked(class_, units=35)))
    assert (one.new.peak, one.old.peak) == (4, 4)
    # Three jobs a second more than there are units for, over some 490 s: the oldest waits for what came before it.
    assert one.new.max_age == pytest.approx(3 * 490 / 38, rel=0.1)
    assert one.old.max_age < 10


def test_a_gap_is_left_out_and_said() -> None:
    made = recorded()
    found = replay(made[:80] + made[120:], asked(spec(replicas=REPLICAS)))
    assert (found.gaps, found.left_out) == (1, 41 * 5)
    assert "nothing was recorded for 205s before 2025-12-01 00:10:00Z: left out" in found.remarks
    assert only(found).old.seconds == (79 + 79) * 5


def test_one_tick_that_is_missing_is_no_gap() -> None:
    made = recorded()
    found = replay(made[:80] + made[81:], asked(spec(replicas=REPLICAS)))
    assert (found.gaps, only(found).old.seconds) == (0, 199 * 5)


def test_arrivals_that_nobody_counted_are_what_there_is_more_and_that_is_said() -> None:
    made = run([Class(spec(replicas={"min": 2, "max": 2}), [1.0] * 40 + [0.0, 40.0, 0.0], length=20.0)], 100)
    bare = [
        replace(t, facts=replace(t.facts, classes={"email": replace(t.facts.classes["email"], arrivals=Arrivals())}))
        for t in made
    ]
    found = replay(bare, asked(spec(replicas={"min": 2, "max": 2})))
    assert [text.partition(";")[0] for text in found.remarks] == ["class email: its arrivals were not counted"]
    assert only(found).old.max_age > 60


def test_a_clock_that_goes_back_is_said_and_not_fatal() -> None:
    made = recorded(100)
    moved = made[:50] + [replace(tick, now=tick.now - 3600) for tick in made[50:]]
    found = replay(moved, asked(spec(replicas=REPLICAS)))
    assert "the clock went back by 3595.0s at 2025-11-30 23:04:10Z: taken for one tick" in found.remarks
    assert only(found).old.seconds == 99 * 5


def test_blind_ticks_are_bridged_when_few_and_left_out_when_many() -> None:
    made = recorded()

    def blind(begin: int, end: int) -> list[Tick]:
        return [
            replace(t, facts=Facts(visible=False, workers=t.facts.workers)) if begin <= n < end else t
            for n, t in enumerate(made)
        ]

    assert only(replay(blind(50, 52), asked(spec(replicas=REPLICAS)))).old.seconds == 199 * 5
    many = replay(blind(50, 70), asked(spec(replicas=REPLICAS)))
    assert only(many).old.seconds == (199 - 21) * 5
    assert many.remarks == ("class email was not seen for 105s before 2025-12-01 00:05:50Z: left out",)


def test_facts_that_cannot_be_true_are_left_out_and_said() -> None:
    made = recorded(60)
    seen = replace(made[30].facts.classes["email"], oldest_age=math.nan)
    made[30] = replace(made[30], facts=replace(made[30].facts, classes={"email": seen}))
    found = replay(made, asked(spec(replicas=REPLICAS)))
    assert found.remarks == ("class email: the facts at 2025-12-01 00:02:30Z cannot be true: left out",)
    assert only(found).old.seconds == 59 * 5


def test_classes_that_only_one_side_knows_are_named() -> None:
    found = replay(recorded(40), asked(spec("invoice")))
    assert found.remarks == (
        "class email is not in the new spec: its workers would end",
        "class invoice was not recorded: nothing is known of its load",
    )
    assert only(found).differences == ()
    assert only(found).new.seconds == 0
    assert only(found).old.seconds == 39 * 5


def test_a_class_that_comes_later_is_scored_from_then_on() -> None:
    early = recorded(40)
    late = run([Class(spec(replicas=REPLICAS), RATES), Class(spec("invoice"), [3.0])], 40)
    late = [replace(tick, now=tick.now + 200) for tick in late]
    found = replay(early + late, asked(spec(replicas=REPLICAS), spec("invoice")))
    assert {c.class_: c.old.seconds for c in found.classes} == {"email": 79 * 5, "invoice": 39 * 5}


def test_a_pause_stops_the_modelled_claims_too() -> None:
    made = recorded(60)
    paused = [
        replace(t, facts=replace(t.facts, classes={"email": replace(t.facts.classes["email"], paused=True)}))
        if n >= 20
        else t
        for n, t in enumerate(made)
    ]
    assert only(replay(paused, asked(spec(replicas=REPLICAS)))).old.max_age == pytest.approx(40 * 5, abs=11)


def test_differences_are_the_largest_and_end_where_the_sign_changes() -> None:
    found = Differences()
    gaps = [1, 1, -2, 0, 3, 3, 0, 1, 0, 1, 0, 1, 0, 1]
    for step, gap in enumerate(gaps, start=1):
        found.add(5.0 * step, 5.0, workers=(4, 4 + gap), ages=(1.0 * step, 2.0))
    most = found.close()
    assert [(d.worker_seconds, d.begin, d.end, d.old, d.new) for d in most[:3]] == [
        (30, 20, 30, 4, 7),
        (10, 10, 15, 4, 2),
        (10, 0, 10, 4, 5),
    ]
    assert (most[0].old_age, most[0].new_age) == (6, 2)
    assert len(most) == 5
    assert found.close() == most


moments = numbers | st.floats(EPOCH, EPOCH + 600)
any_tick = st.builds(Tick, now=moments, tick=numbers, wanted=wanteds, facts=observed, plan=st.just(Plan(())))


@settings(max_examples=50)
@given(st.lists(any_tick, max_size=6), wanteds)
def test_no_record_is_fatal(ticks: list[Tick], new: Any) -> None:
    found = replay(ticks, new)
    assert found.ticks == len(ticks)
    for one in found.classes:
        assert one.old.worker_seconds >= 0
