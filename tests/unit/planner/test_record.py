import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobqueue_operator.planner import record
from jobqueue_operator.planner.decide import plan
from jobqueue_operator.planner.facts import (
    ClassFacts,
    Facts,
)
from jobqueue_operator.planner.plan import Plan
from jobqueue_operator.planner.record import Recorder, Remarks, Tick
from jobqueue_operator.planner.wanted import CapacitySpec, PoolSpec, Wanted
from jobqueue_operator.resources import DownstreamSpec
from unit.planner.arbitrary import numbers, observed, plans, wanteds
from unit.planner.world import Class, run, spec

NOW = 1_764_600_000.123456


def asked(**fields: Any) -> Wanted:
    return Wanted(
        pools=(PoolSpec(key="email", spec=spec(**fields), revision="r1", queue="shop", downstream="db"),),
        capacities=(CapacitySpec(name="db", spec=DownstreamSpec(units=40)),),
    )


def ticks(count: int, wanted: Wanted | None = None) -> list[Tick]:
    """Real plans, each after the last one."""
    found: list[Tick] = []
    previous = None
    for n in range(count):
        facts = Facts(classes={"email": ClassFacts(ready=n, in_flight=n % 3)})
        now = NOW + 5 * n
        asked_for = wanted or asked()
        made = plan(asked_for, facts, previous, now=now, tick=5.0)
        found.append(Tick(now=now, tick=5.0, wanted=asked_for, facts=facts, plan=made, previous=previous))
        previous = made
    return found


def written(*found: Tick) -> list[str]:
    recorder = Recorder()
    return [recorder.line(tick) for tick in found]


def test_a_line_is_one_line_of_json_that_says_when_and_which_version() -> None:
    (text,) = written(*ticks(1))
    assert "\n" not in text
    found = json.loads(text)
    assert found["version"] == 1
    assert (found["at"], found["now"]) == ("2025-12-01T14:40:00.123Z", NOW)


def test_ticks_come_back_as_they_were_and_the_planner_repeats_itself() -> None:
    made = ticks(30)
    found = list(record.read(written(*made)))
    assert found == made
    for tick in found:
        assert plan(tick.wanted, tick.facts, tick.previous, now=tick.now, tick=tick.tick) == tick.plan


def test_a_closed_loop_is_repeated_exactly() -> None:
    capacity = {"ref": {"name": "db"}, "unitsPerJob": 1}
    made = run(
        [
            Class(spec(replicas={"min": 0, "idleAfter": "30s"}, capacity=capacity), [0, 3, *[40] * 20, 0]),
            Class(spec("invoice", capacity={**capacity, "weight": 3}), [2, *[30] * 30, 5]),
        ],
        120,
        units=60,
    )
    found = list(record.read(written(*made)))
    assert found == made
    assert len({tick.plan.pools[0].decision.replicas for tick in found}) > 2
    for tick in found:
        assert plan(tick.wanted, tick.facts, tick.previous, now=tick.now, tick=tick.tick) == tick.plan


def test_the_specs_and_the_plan_before_are_written_once() -> None:
    first, second, third = (json.loads(text) for text in written(*ticks(3)))
    assert first["specs"]["pools"][0]["spec"]["name"] == "email"
    assert first["previous"] is None
    assert not {"specs", "previous"} & (second.keys() | third.keys())


def test_changed_specs_are_written_when_they_change() -> None:
    calm, busy = ticks(2), ticks(2, asked(replicas={"min": 3}))
    made = [*calm, *busy]
    lines = written(*made)
    assert ["specs" in json.loads(text) for text in lines] == [True, False, True, False]
    assert list(record.read(lines)) == made


def test_another_file_begins_with_everything() -> None:
    made = ticks(4)
    recorder = Recorder()
    lines = [recorder.line(tick) for tick in made[:2]]
    recorder.fresh()
    lines += [recorder.line(tick) for tick in made[2:]]
    assert list(record.read(lines[2:])) == made[2:]
    assert list(record.read(lines)) == made


def test_the_specs_come_again_after_many_lines() -> None:
    made = ticks(record.SPECS_EVERY + 2)
    lines = written(*made)
    lines[0] = lines[0][:-1]
    remarks = Remarks()
    assert list(record.read(lines, remarks)) == made[record.SPECS_EVERY :]
    assert remarks.skipped == record.SPECS_EVERY
    assert remarks.texts[1] == "line 2 was left out: the line with its specs could not be read"
    assert len(remarks.texts) == record.REMARKS_MOST


def test_a_pod_template_is_not_recorded() -> None:
    wanted = asked(podTemplate={"env": "s3cret"})
    (text,) = written(*ticks(1, wanted))
    assert "s3cret" not in text
    (found,) = record.read([text])
    assert found.wanted == asked()


def test_the_last_line_cut_off_is_left_out_and_said() -> None:
    made = ticks(3)
    lines = written(*made)
    remarks = Remarks()
    assert list(record.read([*lines[:2], lines[2][:200]], remarks)) == made[:2]
    assert (remarks.lines, remarks.skipped) == (3, 1)
    assert remarks.texts[0].startswith("line 3 was left out: ")


@pytest.mark.parametrize("damage", ["[]", "null", "{", "\x00", '{"version":1}', "[" * 100_000, "{}"])
def test_after_a_damaged_line_the_plan_before_is_not_known(damage: str) -> None:
    made = ticks(3)
    lines = written(*made)
    remarks = Remarks()
    found = list(record.read([lines[0], damage, lines[2]], remarks))
    assert [tick.linked for tick in found] == [True, False]
    assert found[1].previous is None
    assert remarks.skipped == 1


def test_a_damaged_first_line_of_another_run_does_not_lead_to_the_run_before() -> None:
    (earlier,), later = written(*ticks(1)), written(*ticks(2))
    found = list(record.read([earlier, later[0][:-1], later[1]]))
    assert [tick.linked for tick in found] == [True, False]


def test_a_line_that_is_missing_altogether_is_noticed() -> None:
    lines = written(*ticks(3))
    assert [tick.linked for tick in record.read([lines[0], lines[2]])] == [True, False]


def test_empty_lines_are_nothing() -> None:
    lines = written(*ticks(2))
    assert list(record.read([lines[0], "", " \n", lines[1]])) == ticks(2)


@pytest.mark.parametrize("version", [0, 2])
def test_another_version_is_refused_with_both_named(version: int) -> None:
    for text in (written(*ticks(1))[0].replace('"version":1', f'"version":{version}'), f'{{"version":{version}}}'):
        with pytest.raises(record.RecordError, match=f"line 1 is of version {version}, and this release reads version"):
            list(record.read([text]))


def test_members_that_are_not_known_are_ignored_wherever_they_are() -> None:
    tick = ticks(2)[1]
    found = json.loads(record.line(tick))
    for place in (
        found,
        found["facts"],
        found["facts"]["classes"]["email"],
        found["plan"]["pools"][0],
        found["plan"]["pools"][0]["memory"],
        found["specs"],
        found["specs"]["pools"][0],
        found["specs"]["pools"][0]["spec"],
        found["specs"]["pools"][0]["spec"]["replicas"],
    ):
        place["notKnownYet"] = {"a": [1]}
    assert list(record.read([json.dumps(found)])) == [tick]


def test_a_spec_that_is_wrong_is_named() -> None:
    remarks = Remarks()
    (text,) = written(*ticks(1))
    assert list(record.read([text.replace('"concurrency":10', '"concurrency":0')], remarks)) == []
    assert "concurrency" in remarks.texts[0]


def test_what_is_no_number_comes_back_and_is_never_written_bare() -> None:
    facts = Facts(classes={"email": ClassFacts(ages=(math.inf, -math.inf), oldest_age=math.nan)})
    tick = Tick(now=NOW, tick=5.0, wanted=asked(), facts=facts, plan=Plan(()))
    text = record.line(tick)
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    (found,) = record.read([text])
    seen = found.facts.classes["email"]
    assert seen.ages == (math.inf, -math.inf)
    assert math.isnan(seen.oldest_age)


def test_a_text_where_a_number_belongs_is_damage() -> None:
    (text,) = written(*ticks(1))
    remarks = Remarks()
    assert list(record.read([text.replace('"tick":5.0', '"tick":"5.0"')], remarks)) == []
    assert remarks.texts == ["line 1 was left out: tick: Input should be a valid number"]


def test_a_tick_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = ticks(2)
    recorder = Recorder()
    recorder.line(first)
    with monkeypatch.context() as patch:
        patch.setattr(record, "LINE_MOST", 100)
        with pytest.raises(record.RecordError, match="a line has 100 at most"):
            recorder.line(second)
        remarks = Remarks()
        assert list(record.read(["x" * 101], remarks)) == []
        assert remarks.texts == ["line 1 was left out: it has more than 100 characters"]
    assert list(record.read([recorder.line(second)])) == [second]


@settings(max_examples=200)
@given(
    st.lists(
        st.builds(
            Tick,
            now=st.floats(0, record.MOMENT_MOST),
            tick=numbers,
            wanted=wanteds,
            facts=observed,
            plan=plans,
            previous=st.none() | plans,
            linked=st.just(True),  # noqa: FBT003 - what a writer knows
        ),
        max_size=4,
    )
)
def test_any_tick_comes_back_as_it_was(made: list[Tick]) -> None:
    lines = written(*made)
    for entry in lines:
        json.loads(entry, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert list(record.read(lines)) == made


def test_a_line_of_no_date_is_left_out() -> None:
    remarks = Remarks()
    entry = json.loads(written(*ticks(1))[0])
    lines = [json.dumps({**entry, "now": now}) for now in (NOW, -1, "NaN", 1e300)]
    assert [tick.now for tick in record.read(lines, remarks)] == [NOW]
    assert remarks.skipped == 3


@given(st.lists(st.tuples(observed, st.floats(0.1, 30)), max_size=6), wanteds)
def test_a_recorded_sequence_is_repeated_exactly(seen: list[tuple[Facts, float]], wanted: Wanted) -> None:
    made, previous, now = [], None, NOW
    for facts, step in seen:
        now += step
        decided = plan(wanted, facts, previous, now=now, tick=5.0)
        made.append(Tick(now=now, tick=5.0, wanted=wanted, facts=facts, plan=decided, previous=previous))
        previous = decided
    found = list(record.read(written(*made)))
    assert found == made
    for tick in found:
        assert plan(tick.wanted, tick.facts, tick.previous, now=tick.now, tick=tick.tick) == tick.plan


@given(st.lists(st.text() | st.sampled_from(["record", "cut"]), max_size=5), st.integers(0, 2000))
def test_no_damage_raises(pieces: list[str], at: int) -> None:
    lines = written(*ticks(2))
    found = [{"record": lines[1], "cut": lines[1][:at]}.get(piece, piece) for piece in pieces]
    remarks = Remarks()
    first, *_ = record.read([lines[0], *found], remarks)
    assert first == ticks(1)[0]
    assert remarks.lines == len(found) + 1
