"""The patches, and a change that somebody else comes before."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from jobqueue.cli.failure import Refused
from jobqueue_operator.plugin import patches

QUEUE: dict[str, Any] = {
    "metadata": {"name": "shop"},
    "spec": {"classes": [{"name": "email"}, {"name": "report", "paused": True}, {"name": "sweep", "paused": False}]},
}


def test_pausing_tests_the_name_at_each_place_that_it_changes() -> None:
    found = patches.pausing(QUEUE, ["sweep", "report"], paused=True)
    assert found.patch == (
        {"op": "test", "path": "/spec/classes/2/name", "value": "sweep"},
        {"op": "add", "path": "/spec/classes/2/paused", "value": True},
    )
    assert (found.changed, found.unchanged) == (("sweep",), ("report",))


def test_all_classes_when_none_is_said() -> None:
    found = patches.pausing(QUEUE, [], paused=False)
    assert found.patch[1:] == ({"op": "add", "path": "/spec/classes/1/paused", "value": False},)
    assert (found.changed, found.unchanged) == (("report",), ("email", "sweep"))


def test_a_class_that_there_is_not_is_refused_with_those_there_are() -> None:
    with pytest.raises(Refused, match="JobQueue shop has no class 'mail', 'x'") as refused:
        patches.pausing(QUEUE, ["mail", "email", "x"], paused=True)
    assert refused.value.hint == "the classes are: email, report, sweep"


def test_a_restart_is_a_moment_in_utc() -> None:
    now = datetime(2026, 5, 4, 10, 0, 1, 999, tzinfo=timezone(timedelta(hours=2)))
    assert patches.restarting("email", now) == {
        "metadata": {"annotations": {"restart.jobqueue.dev/email": "2026-05-04T08:00:01Z"}}
    }
    assert now.astimezone(UTC).hour == 8
