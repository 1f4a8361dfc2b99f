"""The adaptive limit in a closed loop with a modelled downstream: lengths grow with what is in flight beyond a knee."""

from collections.abc import Callable
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue_operator.planner.adaptive import Sight, Working, working
from jobqueue_operator.planner.memory import CapacityMemory
from jobqueue_operator.planner.plan import Condition, Reason
from jobqueue_operator.planner.wanted import CapacitySpec
from jobqueue_operator.resources import DownstreamSpec

TICK = 5.0


def capacity(units: int = 100, **adaptive: Any) -> CapacitySpec:
    spec = DownstreamSpec.model_validate({"units": units, "adaptive": {"enabled": True, **adaptive}})
    return CapacitySpec(name="db", spec=spec)


def kneed(knee: float, length: float = 0.5) -> Callable[[float], float]:
    return lambda in_flight: length * max(in_flight / knee, 1.0)


def loop(
    spec: CapacitySpec,
    demand: list[float],
    length: Callable[[float, int], float],
    *,
    failing: Callable[[float], float] = lambda _: 0.0,
) -> list[Working]:
    """Run one tick for each demand (units that would be in flight without a limit); the limit bounds it."""
    memory, limit, found = CapacityMemory(), spec.spec.units or 0, []
    lengths: list[float] = []
    through: list[float] = []
    for tick, wish in enumerate(demand):
        in_flight = min(wish, limit)
        share = failing(in_flight)
        lengths.append(length(in_flight, tick))
        through.append(in_flight / lengths[-1])
        sight = Sight(
            in_flight=int(in_flight),
            service=fmean(lengths[-2:]),
            ended=fmean(through[-2:]),
            finished=200,
            failed=200 * share,
            waiting=wish > in_flight,
        )
        answer = working(spec, spec.spec.units or 0, sight, memory, now=1000.0 + TICK * tick, tick=TICK)
        memory, limit = answer.memory, answer.limit
        found.append(answer)
    return found


def ramp(upto: float, ticks: int) -> list[float]:
    return [5 + (upto - 5) * min(n / 20, 1.0) for n in range(ticks)]


@pytest.mark.parametrize("knee", [20, 40, 70])
def test_it_settles_near_the_knee(knee: int) -> None:
    found = loop(capacity(), ramp(500, 300), lambda f, _: kneed(knee)(f))
    settled = [w.limit for w in found[100:]]
    assert min(settled) >= 0.75 * knee
    assert max(settled) <= 1.6 * knee
    assert sum(settled) / len(settled) == pytest.approx(knee, rel=0.2)
    assert any(w.reason is Reason.SATURATED for w in found)
    assert "units in flight get" in found[-1].message


def test_a_burst_that_the_downstream_can_take_changes_nothing() -> None:
    found = loop(capacity(), [5.0] * 20 + [500.0] * 40 + [5.0] * 20, lambda _f, _t: 0.5)
    assert {w.limit for w in found} == {100}


def test_a_slow_down_from_outside_is_not_taken_for_a_knee_and_longer_jobs_are_not() -> None:
    outside = loop(capacity(), [500.0] * 120, lambda _f, t: 2.0 if 40 <= t < 80 else 0.5)
    assert {w.limit for w in outside} == {100}
    # Longer jobs put more in flight at the same rate: the limit is tried lower, and comes back.
    longer = loop(capacity(), [40.0] * 40 + [500.0] * 80, lambda _f, t: 0.5 if t < 40 else 2.0)
    assert min(w.limit for w in longer) >= 80
    assert {w.limit for w in longer[-40:]} == {100}


def test_it_comes_back_when_the_downstream_has_recovered() -> None:
    def length(in_flight: float, tick: int) -> float:
        return kneed(30 if tick < 150 else 1000)(in_flight)

    found = loop(capacity(), ramp(500, 400), length)
    assert found[149].limit < 50
    assert found[-1].limit == 100
    assert found[-1].reason is Reason.SPEC_LIMIT
    assert found[-1].remarks == ()


def test_failures_and_length_lower_it_where_the_manifest_says_so() -> None:
    failing = {"failing": lambda f: 0.5 if f > 30 else 0.01}
    heeded = loop(capacity(errorRate=0.1), ramp(500, 200), lambda _f, _t: 0.5, **failing)
    assert max(w.limit for w in heeded[100:]) <= 40
    assert "of attempts fail, above errorRate 10%" in heeded[-1].message
    ignored = loop(capacity(), ramp(500, 200), lambda _f, _t: 0.5, **failing)
    assert {w.limit for w in ignored} == {100}
    slow = loop(capacity(latency="1s"), ramp(500, 200), lambda f, _t: 0.5 if f <= 50 else 1.5)
    assert max(w.limit for w in slow[100:]) <= 60
    assert "above latency 1s" in slow[-1].message
    assert slow[-1].remarks[0].condition is Condition.DOWNSTREAM_SATURATED


def test_it_waits_for_three_service_times() -> None:
    found = loop(capacity(), [10.0] * 5 + [500.0] * 90, lambda f, _t: 20.0 * max(f / 20, 1.0))
    first = next(n for n, w in enumerate(found) if w.limit < 100)
    assert first * TICK >= 3 * 20.0 * 5  # at 100 in flight an attempt takes 100 s


def test_it_never_goes_below_the_least_and_holds_while_nothing_is_seen() -> None:
    found = loop(capacity(minUnits=25, errorRate=0.01), [500.0] * 200, lambda _f, _t: 0.5, failing=lambda _: 1.0)
    assert min(w.limit for w in found) == 25
    last = found[-1]
    blind = working(capacity(minUnits=25), 100, None, last.memory, now=9000.0, tick=TICK)
    assert blind.limit == last.limit


def test_without_being_asked_it_does_nothing() -> None:
    spec = CapacitySpec(name="db", spec=DownstreamSpec.model_validate({"units": 7}))
    answer = working(spec, 7, Sight(in_flight=7, service=99.0, waiting=True), CapacityMemory(), now=0, tick=TICK)
    assert (answer.limit, answer.reason) == (7, Reason.SPEC_LIMIT)


numbers = st.floats(0, 1e9)


@given(st.lists(st.tuples(st.integers(0, 10**6), numbers, numbers, numbers, st.booleans(), numbers), max_size=20))
def test_any_sight_gives_a_limit_within_its_bounds(sequence: list[Any]) -> None:
    memory = CapacityMemory()
    for in_flight, service, finished, failed, waiting, now in sequence:
        sight = Sight(in_flight=in_flight, service=service, finished=finished, failed=failed, waiting=waiting)
        answer = working(capacity(minUnits=10, errorRate=0.5, latency="1s"), 60, sight, memory, now=now, tick=TICK)
        assert 10 <= answer.limit <= 60
        memory = answer.memory
