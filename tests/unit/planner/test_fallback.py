import pytest
from pydantic import ValidationError

from jobqueue_operator.planner.decide import plan
from jobqueue_operator.planner.facts import ClassFacts, Facts
from jobqueue_operator.planner.plan import Plan, Pool, Reason
from unit.planner.world import asked, spec

BLIND = Facts(visible=False)


def ticks(*facts: Facts, **replicas: object) -> list[Pool]:
    """Plan once a minute, and return what was decided for the class."""
    wanted = asked(spec(replicas={"min": 0, "max": 9, **replicas}))
    previous: Plan | None = None
    found = []
    for number, seen in enumerate(facts):
        previous = plan(wanted, seen, previous, now=1000.0 + 60 * number)
        pool = previous.pool("email")
        assert pool is not None
        found.append(pool)
    return found


def test_without_one_nothing_changes() -> None:
    assert [p.decision.replicas for p in ticks(*[BLIND] * 10)] == [0] * 10


def test_after_a_while_it_holds_until_the_queue_is_seen() -> None:
    found = ticks(*[BLIND] * 4, Facts(classes={"email": ClassFacts()}), fallback={"after": "2m", "replicas": 3})
    assert [p.decision.replicas for p in found[:4]] == [0, 0, 3, 3]
    assert found[1].decision.message == "the queue cannot be read: holding 0; replicas.fallback asks for 3 after 2m"
    assert found[2].decision.reason is Reason.FALLBACK
    assert found[2].decision.message == "the queue cannot be read: for 120s: replicas.fallback, 3"
    assert found[4].decision.reason is not Reason.FALLBACK


def test_being_seen_in_between_starts_it_anew() -> None:
    seen = Facts(classes={"email": ClassFacts()})
    found = ticks(BLIND, BLIND, seen, BLIND, BLIND, fallback={"after": "2m", "replicas": 3})
    assert [p.decision.replicas for p in found] == [0] * 5


def test_it_never_takes_workers_away() -> None:
    busy = Facts(classes={"email": ClassFacts(ready=10_000, oldest_age=500.0)})
    found = ticks(busy, *[BLIND] * 5, fallback={"after": "1m", "replicas": 1})
    assert {p.decision.replicas for p in found} == {9}


def test_more_than_the_maximum_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"fallback\.replicas 4 is above max 3; lower it or raise max"):
        spec(replicas={"max": 3, "fallback": {"after": "1m", "replicas": 4}})
