from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue_operator.planner import draining
from jobqueue_operator.resources import ClassSpec


def spec(**fields: Any) -> ClassSpec:
    return ClassSpec.model_validate({"name": "email", "timeout": "30s", **fields})


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


@pytest.mark.parametrize(
    ("fields", "drain", "grace"),
    [
        ({}, 35, 48),
        ({"timeout": "500ms"}, 5.5, 19),
        ({"drain": {"timeout": "35s"}}, 35, 48),
        ({"drain": {"timeout": "0s"}}, 0, 13),
        ({"timeout": "1h", "drain": {"timeout": "9m47s"}}, 587, 600),
    ],
)
def test_the_sum(fields: dict[str, Any], drain: float, grace: float) -> None:
    end = draining.ending(spec(**fields))
    assert (end.drain_timeout, end.grace) == (seconds(drain), seconds(grace))
    assert draining.problems(spec(**fields)) == []


def test_the_sum_is_shown() -> None:
    assert draining.ending(spec()).sum == "drain.timeout 35s + flush 5s + CLI start 3s + margin 5s = 48s"


@pytest.mark.parametrize(
    ("lease", "beat"),
    [
        ({}, 5),
        ({"duration": "6s"}, 1.5),
        ({"duration": "100ms"}, 0.025),
        ({"heartbeat": "1s"}, 1),
        ({"duration": "1h"}, 5),
    ],
)
def test_the_heartbeat_is_a_quarter_of_the_lease_and_at_most_five_seconds(lease: dict[str, str], beat: float) -> None:
    found = draining.heartbeat(spec(lease=lease))
    assert found.total_seconds() == pytest.approx(beat, abs=1e-6)


def test_a_lease_of_exactly_three_heartbeats_is_taken_and_a_shorter_one_is_not() -> None:
    assert draining.problems(spec(lease={"duration": "6s", "heartbeat": "2s"})) == []
    (problem,) = draining.problems(spec(lease={"duration": "5999ms", "heartbeat": "2s"}))
    assert problem.path == "lease.duration"
    assert "3 x 2s = 6s" in problem.message


def test_a_grace_above_the_most_is_refused_with_the_way_out() -> None:
    (problem,) = draining.problems(spec(timeout="10m"))
    assert problem.path == "drain.timeout"
    assert problem.message == (
        "the grace period (drain.timeout 10m5s + flush 5s + CLI start 3s + margin 5s = 10m18s) is above "
        "drain.maxGrace 10m; state drain.timeout of at most 9m47s or raise drain.maxGrace"
    )


def test_a_most_with_no_room_at_all_offers_no_shorter_drain() -> None:
    (problem,) = draining.problems(spec(drain={"maxGrace": "10s"}))
    assert problem.message.endswith("above drain.maxGrace 10s; raise drain.maxGrace")


def test_a_drain_shorter_than_the_timeout_is_a_condition() -> None:
    (warning,) = draining.warnings(spec(drain={"timeout": "10s"}))
    assert warning.condition == "DrainShorterThanTimeout"
    assert "drain.timeout 10s is shorter than timeout 30s" in warning.message
    assert draining.warnings(spec(drain={"timeout": "30s"})) == []


def test_what_was_observed_is_held_against_what_was_said() -> None:
    assert draining.warnings(spec(), observed_p999=seconds(30), heartbeat_gap=seconds(30)) == []
    found = draining.warnings(spec(), observed_p999=seconds(31), heartbeat_gap=seconds(30.1))
    assert [w.condition for w in found] == ["DurationAboveTimeout", "HeartbeatGaps"]


@given(st.integers(100, 86_400_000))
def test_a_heartbeat_that_is_not_stated_always_fits(lease: int) -> None:
    assert draining.problems(spec(lease={"duration": f"{lease}ms"})) == []


durations = st.integers(100, 604_800_000).map(lambda ms: f"{ms}ms")


@given(durations, st.none() | durations, durations)
def test_the_grace_always_covers_the_drain_or_is_refused(timeout: str, drain: str | None, most: str) -> None:
    class_ = spec(timeout=timeout, drain={"timeout": drain, "maxGrace": most})
    end = draining.ending(class_)
    assert end.grace >= end.drain_timeout + draining.FLUSH + draining.CLI_START + draining.MARGIN
    assert end.grace < end.drain_timeout + seconds(14)
    assert bool(draining.problems(class_)) == (end.grace > class_.drain.max_grace)
    if drain is None:
        assert draining.warnings(class_) == []
