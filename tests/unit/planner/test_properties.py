"""What holds for whatever the planner is given."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobqueue_operator.planner import demand
from jobqueue_operator.planner.decide import plan
from jobqueue_operator.planner.facts import Arrivals, Attempts, ClassFacts, Facts, Phase, Span, WorkerFacts
from jobqueue_operator.planner.memory import ClassMemory
from jobqueue_operator.planner.plan import Decision, Plan, Pool, Reason
from unit.planner import arbitrary
from unit.planner.world import Class, asked, run, spec

if TYPE_CHECKING:
    from jobqueue_operator.planner.wanted import Wanted

anything = st.floats() | st.integers() | st.none() | st.text(max_size=3)
BLIND = {Reason.NOT_VISIBLE, Reason.FACTS_REFUSED, Reason.FALLBACK}


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(arbitrary.observed, arbitrary.wanteds, st.none() | arbitrary.plans, st.floats(), st.floats(0.1, 60))
def test_no_facts_and_no_past_raise_and_the_bounds_hold(
    facts: Facts, wanted: Wanted, previous: Plan | None, now: float, tick: float
) -> None:
    for pool, asked_for in zip(plan(wanted, facts, previous, now=now, tick=tick).pools, wanted.pools, strict=False):
        replicas, decided = asked_for.spec.replicas, pool.decision
        if decided.reason not in BLIND:
            assert replicas.min <= decided.replicas <= replicas.max


@settings(deadline=None)
@given(st.data())
def test_facts_that_are_no_numbers_hold_what_there_is(data: st.DataObject) -> None:
    """A damaged record, a NULL, a NaN: any field may be anything."""
    fields: dict[str, Any] = {
        name: data.draw(anything)
        for name in ("ready", "blocked", "oldest_age", "in_flight", "expired", "scheduled", "dead")
        if data.draw(st.booleans())
    }
    seen = replace(ClassFacts(), ages=(data.draw(anything),), **fields)  # type: ignore[arg-type]
    there = tuple(WorkerFacts(name=f"w{n}", class_="email", phase=Phase.READY, revision="r1") for n in range(3))
    decided = plan(asked(spec()), Facts(classes={"email": seen}, workers=there), None, now=100.0).pool("email")
    assert decided is not None
    if not all(_counted(value) for value in [*seen.ages, *fields.values()]):
        assert decided.decision.reason is Reason.FACTS_REFUSED
        assert (decided.decision.replicas, decided.retire, decided.stop) == (3, (), ())


def _counted(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value <= 1e15


@settings(deadline=None)
@given(st.integers(0, 10**9), st.floats(0, 1e6), st.integers(0, 4), st.integers(4, 9), st.integers(0, 12))
def test_any_backlog_stays_within_the_bounds(jobs: int, age: float, least: int, most: int, there: int) -> None:
    workers = tuple(WorkerFacts(name=f"w{n}", class_="email", phase=Phase.READY, revision="r1") for n in range(there))
    facts = Facts(classes={"email": ClassFacts(ready=jobs, oldest_age=age if jobs else 0.0)}, workers=workers)
    decided = plan(asked(spec(replicas={"min": least, "max": most})), facts, None, now=100.0).pool("email")
    assert decided is not None
    assert max(least, int(jobs > 0)) <= decided.decision.replicas <= most


@settings(deadline=None)
@given(st.integers(0, 9), st.lists(st.sampled_from(Phase), max_size=9), st.integers(0, 5), st.booleans())
def test_nobody_goes_while_nothing_is_seen(held: int, phases: list[Phase], least: int, refused: bool) -> None:  # noqa: FBT001
    there = tuple(
        WorkerFacts(name=f"w{n}", class_="email", phase=phase, revision="r1") for n, phase in enumerate(phases)
    )
    facts = Facts(visible=False, workers=there)
    if refused:
        facts = Facts(classes={"email": ClassFacts(oldest_age=-1.0)}, workers=there)
    previous = Plan((Pool("email", "r1", Decision(held, Reason.DEMAND, "")),))
    decided = plan(asked(spec(replicas={"min": least})), facts, previous, now=100.0).pool("email")
    assert decided is not None
    assert decided.decision.replicas == max(held, least)
    assert (decided.retire, decided.stop) == ((), ())


ages = st.lists(st.floats(0, 200), min_size=8, max_size=8).map(lambda found: tuple(sorted(found, reverse=True)))
slots_of = st.lists(st.tuples(st.sampled_from([Phase.READY, Phase.STARTING]), st.floats(0, 20)), max_size=6)


@settings(deadline=None)
@given(
    st.integers(1, 5000), ages, st.floats(0, 200), st.floats(0.01, 60), st.floats(0, 30), slots_of,
    st.integers(0, 2000), st.floats(0, 100), st.floats(0, 50),
)  # fmt: skip
def test_more_and_older_jobs_and_more_arrivals_never_need_fewer_workers(
    jobs: int,
    at: tuple[float, ...],
    rate: float,
    length: float,
    delay: float,
    there: list[tuple[Phase, float]],
    more: int,
    older: float,
    faster: float,
) -> None:
    memory = ClassMemory(prior=length, service=length, start_delay=delay)
    workers = [
        WorkerFacts(name=f"w{n}", class_="email", phase=phase, revision="r1", slots=4, age=age)
        for n, (phase, age) in enumerate(there)
    ]

    def need(jobs: int, at: tuple[float, ...], rate: float) -> int:
        arrivals = Arrivals(last=5 * rate, before=5 * rate, in_20s=20 * rate, in_60s=60 * rate)
        cohort = Attempts(finished=(Span(length, 500, 500 * length),))
        seen = ClassFacts(ready=jobs, ages=at, oldest_age=at[0], arrivals=arrivals, attempts=cohort)
        found, _ = demand.terms(seen, workers, memory, target=30.0, stated_slots=4, tick=5.0)
        return max(found.up, found.need)

    base = need(jobs, at, rate)
    assert need(jobs + more, at, rate) >= base
    assert need(jobs, tuple(age + older for age in at), rate) >= base
    assert need(jobs, at, rate + faster) >= base


@settings(max_examples=5, deadline=None)
@given(st.integers(1, 12), st.floats(0.3, 4), st.sampled_from([1.0, 8.0, 20.0]))
def test_a_constant_load_comes_to_rest(rate: int, length: float, delay: float) -> None:
    """Of a load between two numbers of workers, the lower one is tried now and then, not each minute."""
    class_ = spec(concurrency=4, replicas={"min": 0, "max": 50}, target={"oldestMessageAge": "60s"})
    made = run([Class(class_, [float(rate)], length=length, start_delay=delay)], 240)
    decided = [pool.decision.replicas for t in made[120:] if (pool := t.plan.pool("email")) is not None]
    changes = sum(a != b for a, b in pairwise(decided))
    assert changes <= 20, decided
    assert max(decided) - min(decided) <= 2, decided
