import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue_operator.planner.fluid import COHORTS_MOST, FluidQueue


def queue(waiting: float = 0, running: float = 0, ages: tuple[float, ...] = ()) -> FluidQueue:
    found = FluidQueue()
    found.restart(0.0, waiting=waiting, running=running, ages=ages)
    return found


def test_below_the_slots_as_many_run_as_come_in_one_length() -> None:
    found = queue()
    found.advance(100.0, 100.0, arrivals=1000.0, slots=20, service=1.0)
    assert found.running == pytest.approx(10)
    assert found.waiting == 0
    assert found.ages(100.0) == ()


def test_above_the_slots_the_queue_grows_by_what_they_cannot_do() -> None:
    found = queue(running=5)
    found.advance(10.0, 10.0, arrivals=100.0, slots=5, service=1.0)
    assert found.running == 5
    assert found.waiting == pytest.approx(50)
    # Of the hundred that came the first fifty were started, so the oldest came at 5 s.
    assert found.ages(10.0) == pytest.approx([5 - k * 5 / 8 for k in range(8)])


def test_a_backlog_is_worked_off_and_then_runs_out() -> None:
    found = queue(waiting=90, running=10)
    found.advance(5.0, 5.0, arrivals=0.0, slots=10, service=1.0)
    assert found.running == 10
    assert found.waiting == pytest.approx(40)
    found.advance(10.0, 5.0, arrivals=0.0, slots=10, service=1.0)
    assert found.running == pytest.approx(10 * math.exp(-1))
    assert found.waiting == 0


def test_slots_that_fill_up_within_a_step() -> None:
    found = queue()
    found.advance(2.0, 2.0, arrivals=40.0, slots=10, service=1.0)
    # 20 (1 - exp(-t)) is 10 after ln 2; from there on 20 come and 10 end a second.
    assert found.running + found.waiting == pytest.approx(10 + 10 * (2 - math.log(2)))


def test_what_runs_when_slots_go_runs_to_its_end() -> None:
    found = queue(running=10)
    found.advance(1.0, 1.0, arrivals=3.0, slots=0, service=1.0)
    assert found.running == pytest.approx(10 * math.exp(-1))
    assert found.waiting == pytest.approx(3)


def test_nothing_happens_in_no_time() -> None:
    found = queue(waiting=5, running=1, ages=(4.0,))
    found.advance(0.0, 0.0, arrivals=100.0, slots=0, service=1.0)
    assert (found.running, found.waiting) == (1, 5)


def test_a_queue_that_was_seen_has_its_ages() -> None:
    seen = (80.0, 70.0, 60.0, 50.0, 40.0, 30.0, 20.0, 10.0)
    assert queue(waiting=16, ages=seen).ages(0.0) == pytest.approx(seen)
    assert queue(waiting=16, ages=seen).ages(5.0) == pytest.approx([age + 5 for age in seen])
    assert queue(waiting=16).ages(0.0) == (0.0,) * 8


def test_first_come_first_served() -> None:
    found = queue(waiting=8, running=1, ages=(80.0, 70.0, 60.0, 50.0, 40.0, 30.0, 20.0, 10.0))
    found.advance(4.0, 4.0, arrivals=0.0, slots=1, service=1.0)
    assert found.ages(4.0)[0] == pytest.approx(44)


def test_a_long_queue_is_kept_in_few_groups() -> None:
    found = queue()
    for step in range(1, 1001):
        found.advance(5.0 * step, 5.0, arrivals=10.0, slots=0, service=1.0)
    assert found.waiting == pytest.approx(10_000)
    assert len(found._cohorts) <= COHORTS_MOST + 1  # noqa: SLF001 - it is bounded, which nothing else shows
    assert found.ages(5000.0) == pytest.approx([5000 - 625 * k for k in range(8)])


sizes = st.floats(0, 1e4)


@given(sizes, sizes, sizes, st.floats(0, 500), st.floats(0.01, 100), st.floats(0.1, 60), st.floats(0.1, 0.9))
def test_two_steps_are_one(
    waiting: float, running: float, arrivals: float, slots: float, service: float, seconds: float, part: float
) -> None:
    whole, halves = (queue(waiting, min(running, slots), (9.0, 3.0)) for _ in range(2))
    whole.advance(seconds, seconds, arrivals=arrivals, slots=slots, service=service)
    halves.advance(seconds * part, seconds * part, arrivals=arrivals * part, slots=slots, service=service)
    rest = 1 - part
    halves.advance(seconds, seconds * rest, arrivals=arrivals * rest, slots=slots, service=service)
    assert whole.waiting + whole.running == pytest.approx(halves.waiting + halves.running, rel=1e-6, abs=1e-6)


@given(sizes, sizes, st.lists(st.tuples(sizes, st.floats(0, 500), st.floats(0.01, 100)), max_size=8))
def test_no_job_is_made_and_ages_go_down(
    waiting: float, running: float, steps: list[tuple[float, float, float]]
) -> None:
    found = queue(waiting, running, (9.0, 3.0))
    there, now = waiting + running, 0.0
    for arrivals, slots, service in steps:
        now += 5.0
        found.advance(now, 5.0, arrivals=arrivals, slots=slots, service=service)
        there += arrivals
        assert found.waiting >= 0
        assert found.running >= 0
        assert found.waiting + found.running <= there + 1e-6 * (1 + there)
        ages = found.ages(now)
        assert list(ages) == sorted(ages, reverse=True)
        assert all(0 <= age <= now + 9.0 + 1e-6 for age in ages)
