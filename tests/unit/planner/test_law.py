"""The law on facts whose answer can be computed by hand: T 30 s, so dl 20 s and R 10 s; start delay 8 s; 4 slots."""

from itertools import pairwise
from typing import Any

import pytest

from jobqueue_operator.planner import demand, estimate, victims
from jobqueue_operator.planner.decide import plan
from jobqueue_operator.planner.facts import Arrivals, Attempts, ClassFacts, Facts, Phase, Span, WorkerFacts
from jobqueue_operator.planner.memory import ClassMemory, Past
from jobqueue_operator.planner.plan import Condition, Decision, Plan, Pool, Reason, Terms
from unit.planner.world import Class, asked, run, spec

SECOND = ClassMemory(prior=1.0, service=1.0, start_delay=8.0)


def worker(name: str, phase: Phase = Phase.READY, **fields: Any) -> WorkerFacts:
    return WorkerFacts(name=name, class_="email", phase=phase, revision="r1", slots=4, **fields)


def fleet(number: int, phase: Phase = Phase.READY, **fields: Any) -> list[WorkerFacts]:
    return [worker(f"w{n}", phase, **fields) for n in range(number)]


def terms(seen: ClassFacts, *workers: WorkerFacts, memory: ClassMemory = SECOND, target: float = 30.0) -> Terms:
    return demand.terms(seen, workers, memory, target=target, stated_slots=4, tick=5.0)[0]


def waiting(jobs: int, *ages: float, **fields: Any) -> ClassFacts:
    return ClassFacts(ready=jobs, ages=ages, oldest_age=max(ages, default=0.0), **fields)


def test_the_deadline_leaves_room_for_two_ticks_or_a_fifth() -> None:
    assert demand.deadline(30, 5) == 20
    assert demand.deadline(100, 5) == 80
    assert demand.deadline(8, 5) == 2, "a target below two ticks: a quarter of it"


def test_a_backlog_by_hand() -> None:
    """100 jobs of 1 s, 10 s old, nobody there.

    The last must begin by 20 - 10 s; that is below tau + R = 18 s, so by 18 s, and end a second later:
    x = 100 / (4 * (19 - 8)) = 2.27, y = 100 / 19 / 4 = 1.32.
    """
    found = terms(waiting(100, *[10.0] * 8))
    assert found.catch_up == pytest.approx(100 / 44)
    assert found.floor == pytest.approx(100 / 19 / 4)
    assert (found.up, found.need) == (3, 2)


def test_a_load_by_hand() -> None:
    """20 arrivals a second of 1 s: 20 slots, 5 workers; theta is 1 - 18 / 20 = 0.1, so 5 - 0.1 rounds up to 5."""
    found = terms(ClassFacts(arrivals=Arrivals(last=100, before=100, in_20s=400, in_60s=1200)))
    assert (found.rate, found.load, found.steady) == (20, 20, 5)


@pytest.mark.parametrize("age", [0.0, 5.0, 19.9, 20.0, 29.0, 31.0, 1e6])
def test_one_job_is_one_worker_however_old(age: float) -> None:
    for there in ([], fleet(1)):
        found = terms(waiting(1, age), *there)
        assert max(found.up, found.need) == 1


def test_one_ancient_job_before_fresh_ones_is_one_job() -> None:
    found = terms(waiting(40, 10_000.0, *[0.0] * 7), *fleet(2))
    assert max(found.up, found.need) <= 2, "40 s of work in 20 s on 8 slots"


def test_starts_that_take_longer_than_the_target_are_sized_for_and_said() -> None:
    """tau 25: the last begins by tau + R = 35 and ends by 36, x = 100 / (4 * 11) = 2.27."""
    slow = ClassMemory(prior=1.0, service=1.0, start_delay=25.0)
    found = terms(waiting(100, *[0.0] * 8), memory=slow)
    assert found.catch_up == pytest.approx(100 / 44)
    assert found.up == 3
    wanted = asked(spec(concurrency=4, target={"oldestMessageAge": "20s"}))
    late = WorkerFacts(name="w", class_="email", phase=Phase.READY, revision="r1", started_in=25.0)
    facts = Facts(classes={"email": ClassFacts()}, workers=(late,))
    decided = plan(wanted, facts, None, now=100.0).pool("email")
    assert decided is not None
    assert Condition.TARGET_BELOW_START_DELAY in {r.condition for r in decided.decision.remarks}


def test_a_batch_is_not_a_rate_and_a_step_is() -> None:
    assert estimate.rate(Arrivals(last=600, before=0, in_20s=600, in_60s=600)) == 10, "a minute's mean"
    assert estimate.rate(Arrivals(last=0, before=600, in_20s=600, in_60s=600)) == 10
    step = estimate.rate(Arrivals(last=100, before=100, in_20s=200, in_60s=200))
    assert step == pytest.approx((100 - 2 * 10) / 5)


def test_a_batch_that_straddles_a_tick_asks_for_no_more_workers_than_have_jobs() -> None:
    """For one tick it looks like a step; what keeps slots busy is the 40 jobs and those of one more tick."""
    seen = waiting(40, *[0.0] * 8, arrivals=Arrivals(last=20, before=20, in_20s=40, in_60s=40))
    found = terms(seen)
    assert found.rate == pytest.approx((20 - 2 * 20**0.5) / 5)
    assert max(found.up, found.need, found.steady) <= found.useful == 13


def test_jobs_that_all_started_together_grow_with_their_age_before_any_has_ended() -> None:
    """40 attempts of 12 s so far, and 5 of the prior's 1 s."""
    found = estimate.service(Attempts(running=(Span(12, 40, 480),)), SECOND, deadline=20)
    assert found == pytest.approx((40 * 12 + 5 * 1) / 45)


def test_a_slow_down_is_seen_in_the_attempts_that_run_not_in_those_that_end() -> None:
    """The few that end are those that started before it; leaving the others out would say 1 s."""
    seen = Attempts(finished=(Span(1, 10, 10),), running=(Span(18, 40, 720),))
    assert estimate.service(seen, SECOND, deadline=20) == pytest.approx((10 + 720 + 5) / 55)


def test_jobs_that_wait_within_their_time_ask_for_nobody_beyond_the_load() -> None:
    """20 a second of 1 s on 5 workers, and 300 waiting, 10 s old: 320 s of work, 20 * 19 s of slots."""
    come = Arrivals(last=100, before=100, in_20s=400, in_60s=1200)
    found = terms(waiting(300, *[10.0] * 8, in_flight=20, arrivals=come), *fleet(5))
    assert (found.catch_up, found.up, found.need) == (0, 0, 5)


def test_jobs_that_became_longer_are_seen_in_what_the_busy_slots_get_done() -> None:
    """100 ended that took 1 s; in the last ten seconds 16 did, with 20 slots busy: 200 / (16 + 4 * 4) = 6.25 s each.

    The load of 2 a second is then 12.5 slots, not 2; while nothing waits, it is not looked at.
    """
    attempts = Attempts(finished=(Span(1, 495, 495),), running=(Span(16, 20, 300),), lately=(16, 80))
    come = Arrivals(last=10, before=10, in_20s=40, in_60s=120)
    found = terms(waiting(8, *[0.0] * 8, in_flight=20, attempts=attempts, arrivals=come), *fleet(5))
    assert found.occupied == pytest.approx(200 / 32)
    assert found.load == pytest.approx(2 * 200 / 32)
    assert found.service < 2, "the cohort does not know yet"
    assert terms(waiting(0, in_flight=20, attempts=attempts, arrivals=come), *fleet(5)).occupied == 0


@pytest.mark.parametrize(
    ("running", "lately", "expected"),
    [
        ((Span(10, 40, 400),), (4, 40), 0.0),
        ((Span(10, 8, 80),), (25, 50), (80 + 50) / 45),
        ((Span(100, 8, 800), Span(4, 4, 12)), (25, 50), (12 + 50) / 45),
    ],
    ids=["too few ended", "workers that have just come up", "giants"],
)
def test_what_a_slot_gets_done_is_not_taken_from_what_says_nothing(
    running: tuple[Span, ...], lately: tuple[float, float], expected: float
) -> None:
    found = estimate.occupied(Attempts(running=running, lately=lately), 80, tick=5, deadline=20)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(("up_for", "stuck"), [(0.0, False), (60.0, True)])
def test_a_worker_that_has_just_come_up_is_not_taken_for_one_that_finds_nothing(up_for: float, stuck: bool) -> None:  # noqa: FBT001
    """For four ticks one of two workers has no job, while what waits grows older: a new one each time, or the same?"""
    wanted = asked(spec(concurrency=4, target={"oldestMessageAge": "30s"}, replicas={"min": 0, "max": 9}))
    there = (worker("a", age=99.0, started_in=8.0), worker("b", age=8.0 + up_for, started_in=8.0))
    previous: Plan | None = None
    for n in range(4):
        facts = Facts(classes={"email": waiting(600, *[1.0 + n] * 8, in_flight=4)}, workers=there)
        previous = plan(wanted, facts, previous, now=1000.0 + 5 * n)
    pool = previous.pool("email") if previous is not None else None
    assert pool is not None
    assert (pool.decision.reason is Reason.HEAD_BLOCKED) is stuck
    assert (pool.decision.replicas > 2) is not stuck


def test_jobs_that_nobody_understands_are_no_load_however_many_arrive() -> None:
    arrivals = Arrivals(last=100, before=100, in_20s=400, in_60s=1200)
    seen = waiting(1200, *[20.0] * 8, blocked=1200, unsupported=1200, arrivals=arrivals)
    assert (terms(seen).rate, terms(seen).need) == (0, 1)
    beside = waiting(1200, *[20.0] * 8, blocked=1200, unsupported=1200, arrivals=arrivals, in_flight=20)
    assert terms(beside).rate == 20, "they may be the few beside a stream that is worked off"


def test_giants_take_their_slots_and_do_not_lengthen_the_rest() -> None:
    """8 attempts of 100 s fill two workers; 40 jobs of 1 s: 2 + 40 / (4 * (20 + 1 - 8)) = 2.77."""
    seen = waiting(40, *[0.0] * 8, in_flight=8, attempts=Attempts(running=(Span(100, 8, 800),)))
    found = terms(seen, *fleet(2))
    assert (found.giants, found.service) == (8, 1)
    assert found.catch_up == pytest.approx(40 / 52)
    assert found.up == 3


def test_attempts_are_cut_off_at_the_deadline() -> None:
    seen = Attempts(finished=(Span(1, 99, 99), Span(3600, 1, 3600)))
    assert estimate.service(seen, SECOND, deadline=20) == pytest.approx((99 + 20 + 5) / 105)


@pytest.mark.parametrize(("prior", "found"), [(100.0, (500 + 5 * 20) / 505), (0.01, (500 + 0.05) / 505)])
def test_a_prior_that_is_wrong_a_hundred_times_is_outweighed(prior: float, found: float) -> None:
    seen = Attempts(finished=(Span(1, 500, 500),))
    assert estimate.service(seen, ClassMemory(prior=prior), deadline=20) == pytest.approx(found)


def test_workers_that_vanish_while_they_start_are_asked_for_again() -> None:
    wanted = asked(spec(concurrency=4, replicas={"min": 0, "max": 20}))
    seen = waiting(400, *[0.0] * 8)
    previous: Plan | None = None
    for number, workers in enumerate([(), fleet(6, Phase.STARTING, age=1.0), (), fleet(2, Phase.STARTING, age=1.0)]):
        facts = Facts(classes={"email": seen}, workers=tuple(workers))
        previous = plan(wanted, facts, previous, now=100.0 + 5 * number)
        pool = previous.pool("email")
        assert pool is not None
        assert pool.decision.replicas >= 3, "the need does not depend on who is starting"


def test_workers_on_their_way_are_counted_from_when_they_will_be_there() -> None:
    """8 s to go of 8: 4 * (21 - 8) = 52 s of work for jobs begun by the deadline; one that is due in a tick: 64 s."""
    seen = waiting(96, *[0.0] * 8)
    assert terms(seen, *fleet(2, Phase.STARTING, age=0.0)).catch_up == 0
    assert terms(seen, *fleet(1, Phase.STARTING, age=0.0)).catch_up == pytest.approx((96 - 52) / 52)
    assert terms(seen, *fleet(1, Phase.STARTING, age=6.0)).catch_up == pytest.approx((96 - 64) / 52)


@pytest.mark.parametrize(("rate", "length", "delay"), [(5.0, 1.0, 1.0), (5.0, 1.0, 8.0), (3.0, 1.9, 8.0)])
def test_a_load_between_two_numbers_of_workers_does_not_dither(rate: float, length: float, delay: float) -> None:
    """A part of a worker is rounded away, wanted again, and kept then: in ten minutes it goes four times at most."""
    class_ = spec(concurrency=4, replicas={"min": 0, "max": 20}, target={"oldestMessageAge": "60s"})
    made = run([Class(class_, [rate], length=length, start_delay=delay)], 240)
    decided = [pool.decision.replicas for t in made[120:] if (pool := t.plan.pool("email")) is not None]
    assert set(decided) <= {1, 2}
    assert sum(a != b for a, b in pairwise(decided)) <= 8, decided


def test_a_retired_worker_is_taken_back_before_one_is_made_and_one_that_ends_is_not() -> None:
    there = [worker("a"), worker("b", Phase.RETIRED), worker("c", Phase.DRAINING)]
    assert victims.moves(there, 2, "r1").take_back == ("b",)
    assert victims.moves(there, 3, "r1").take_back == ("b",)
    assert victims.moves(there[:1] + there[2:], 3, "r1").take_back == ()


@pytest.mark.parametrize(("due_in", "workers"), [(6.0, 1), (600.0, 0)])
def test_only_a_retry_that_is_due_before_a_worker_could_start_keeps_one(due_in: float, workers: int) -> None:
    wanted = asked(spec(concurrency=4, replicas={"min": 0, "idleAfter": "10s"}))
    soon = tuple((h, int(due_in <= h)) for h in (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0))
    previous: Plan | None = None
    for number in range(40):
        there = WorkerFacts(name="w", class_="email", phase=Phase.READY, revision="r1", started_in=8.0)
        facts = Facts(classes={"email": ClassFacts(scheduled=1, due_soon=soon)}, workers=(there,))
        previous = plan(wanted, facts, previous, now=1000.0 + 5 * number)
    pool = previous.pool("email") if previous is not None else None
    assert pool is not None
    assert pool.decision.replicas == workers


@pytest.mark.parametrize("window", [30.0, 120.0])
def test_a_class_that_is_idle_for_long_enough_goes_to_zero_whatever_the_windows_remember(window: float) -> None:
    wanted = asked(spec(concurrency=4, replicas={"min": 0, "max": 9, "idleAfter": "20s"}))
    there = tuple(fleet(4))
    memory = ClassMemory(window=window, window_at=1000.0, past=(Past(1000.0, 4, 4),), busy_at=1000.0)
    previous = Plan((Pool("email", "r1", Decision(4, Reason.DEMAND, ""), memory=memory),))
    for number, expected in ((1, 4), (3, 4), (4, 0)):
        facts = Facts(classes={"email": ClassFacts()}, workers=there)
        found = plan(wanted, facts, previous, now=1000.0 + 5 * number).pool("email")
        assert found is not None
        assert found.decision.replicas == expected
