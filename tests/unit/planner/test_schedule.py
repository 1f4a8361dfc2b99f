from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from jobqueue_operator.planner import schedule
from jobqueue_operator.planner.decide import plan
from jobqueue_operator.planner.facts import ClassFacts, Facts
from jobqueue_operator.planner.plan import Condition, Decision, Reason
from unit.planner.world import asked, spec

OSLO = ZoneInfo("Europe/Oslo")
MORNINGS = {"cron": "0 8 * * 1-5", "timeZone": "Europe/Oslo", "for": "2h", "min": 4}


def at(*moment: int, fold: int = 0) -> float:
    return datetime(*moment, tzinfo=OSLO, fold=fold).timestamp()  # type: ignore[misc,arg-type]


def decided(now: float, *entries: dict[str, Any], units: int | None = None, **fields: Any) -> Decision:
    if units is not None:
        fields["capacity"] = {"ref": {"name": "db"}}
    class_ = spec(replicas={"min": 1, "max": 9}, concurrency=4, schedule=list(entries), **fields)
    facts = Facts(classes={"email": ClassFacts()})
    found = plan(asked(class_, units=units), facts, None, now=now).pool("email")
    assert found is not None
    return found.decision


@pytest.mark.parametrize(
    ("now", "workers"),
    [
        (at(2026, 12, 3, 7, 59, 59), 1),
        (at(2026, 12, 3, 8, 0, 0), 4),
        (at(2026, 12, 3, 9, 59, 59), 4),
        (at(2026, 12, 3, 10, 0, 0), 1),
        (at(2026, 12, 5, 9, 0, 0), 1),  # a Saturday
        (at(2026, 7, 3, 8, 0, 0), 4),  # summer time
    ],
)
def test_a_minimum_holds_from_each_firing_for_a_while(now: float, workers: int) -> None:
    assert decided(now, MORNINGS).replicas == workers


def test_it_says_so_and_the_highest_wins() -> None:
    found = decided(at(2026, 12, 3, 9), MORNINGS, {**MORNINGS, "min": 6}, {**MORNINGS, "min": 2})
    assert (found.replicas, found.reason) == (6, Reason.SCHEDULED_MINIMUM)
    assert found.message == "schedule '0 8 * * 1-5' for 2h asks for 6; the demand is 0"


def test_a_paused_class_has_it_too_and_a_pin_is_stronger() -> None:
    assert decided(at(2026, 12, 3, 9), MORNINGS, paused=True).replicas == 4


@pytest.mark.parametrize(
    ("cron", "before", "after"),
    [
        # 02:00 to 03:00 does not exist on 28 March 2027: it fires at the change.
        ("30 2 * * *", at(2027, 3, 28, 1, 59), at(2027, 3, 28, 3, 0, 1)),
        # 02:00 to 03:00 comes twice on 25 October 2026: it fires in the first.
        ("30 2 * * *", at(2026, 10, 25, 2, 29), at(2026, 10, 25, 2, 30)),
    ],
)
def test_changes_of_the_clocks(cron: str, before: float, after: float) -> None:
    (entry,) = spec(schedule=[{**MORNINGS, "cron": cron, "for": "10m", "min": 1}]).schedule
    assert not schedule.holds(entry, before)
    assert schedule.holds(entry, after)


def test_a_repeated_hour_fires_once() -> None:
    (entry,) = spec(schedule=[{**MORNINGS, "cron": "30 2 * * *", "for": "10m", "min": 1}]).schedule
    assert not schedule.holds(entry, at(2026, 10, 25, 2, 30, fold=1))


def test_a_minimum_that_the_downstream_has_no_room_for_is_said() -> None:
    found = decided(at(2026, 12, 3, 9), MORNINGS, units=8)
    assert (found.replicas, found.reason) == (2, Reason.DOWNSTREAM_CAPACITY)
    assert [r.condition for r in found.remarks] == [Condition.MINIMUM_NOT_MET]


@pytest.mark.parametrize("now", [float("inf"), float("nan"), -1e18, 1e18])
def test_a_time_that_no_calendar_has_is_no_time_of_any_schedule(now: float) -> None:
    (entry,) = spec(schedule=[MORNINGS]).schedule
    assert not schedule.holds(entry, now)


def test_more_than_the_maximum_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"schedule: min 4 is above replicas\.max 3; lower it or raise max"):
        spec(replicas={"max": 3}, schedule=[MORNINGS])
