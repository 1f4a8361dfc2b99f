"""Arguments of the wrong type are refused by name before a statement is sent: it would end the caller's transaction."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from jobqueue import NewJob, queue
from jobqueue.errors import InvalidInput


class NoConnection(psycopg.Connection[Any]):
    """Fails the test when a statement would be sent."""

    def __init__(self) -> None:
        pass

    def cursor(self, *_args: Any, **_options: Any) -> Any:
        raise AssertionError("a statement was sent")

    def __del__(self, *_args: Any) -> None:
        pass


WRONG = [
    ("run_after", timedelta(hours=1), "must be a datetime, not timedelta"),
    ("run_after", "2030-01-01", "must be a datetime, not str"),
    ("run_after", datetime(2030, 1, 1), "without a time zone"),  # noqa: DTZ001 - that is the mistake
    ("priority", 1.5, "must be a whole number"),
    ("version", 2**40, "must be a whole number of at most 32 bits"),
    ("version", True, "must be a whole number"),
    ("max_attempts", "3", "must be a whole number"),
    ("trace_context", "x", "must be a mapping"),
    ("tenant", 7, "must be text, not int"),
    ("key", b"k", "must be text, not bytes"),
]


@pytest.mark.parametrize(("field", "value", "says"), WRONG)
def test_a_wrong_argument_is_named(field: str, value: Any, says: str) -> None:
    given: Any = {field: value}
    with pytest.raises(InvalidInput, match=f"^{field}: .*{says}"):
        queue.enqueue(NoConnection(), "c", "k", {}, **given)


@pytest.mark.parametrize(("field", "value", "says"), WRONG)
def test_in_a_batch_its_place_is_named_too(field: str, value: Any, says: str) -> None:
    jobs = [NewJob("c", "k", {}), NewJob("c", "k", {})._replace(**{field: value})]
    with pytest.raises(InvalidInput, match=rf"^jobs\[1\]\.{field}: .*{says}"):
        queue.enqueue_many(NoConnection(), jobs)


def test_a_time_to_snooze_until_is_checked_as_well() -> None:
    until: Any = timedelta(minutes=1)
    with pytest.raises(InvalidInput, match="until: must be a datetime"):
        queue.snooze(NoConnection(), 1, 2, until)
