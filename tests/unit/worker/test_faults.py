from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pydantic
import pytest

from jobqueue.outcomes import Dead, Retry, Snooze
from jobqueue.worker import faults


class Line(pydantic.BaseModel):
    price: int

    @pydantic.field_validator("price")
    @classmethod
    def _positive(cls, value: int) -> int:
        if value < 0:
            raise ValueError(f"canary {value} is negative")
        return value


class Order(pydantic.BaseModel):
    lines: list[Line]


def refused(payload: object) -> pydantic.ValidationError:
    with pytest.raises(pydantic.ValidationError) as caught:
        Order.model_validate(payload)
    return caught.value


def test_outcomes_steer() -> None:
    retry = faults.from_exception(Retry("busy", after=5))
    assert (retry.outcome, retry.reason, retry.retry_after) == ("retry", "busy", timedelta(seconds=5))
    assert faults.from_exception(Dead("gone")).outcome == "dead"
    until = datetime(2030, 1, 1, tzinfo=UTC)
    assert faults.from_exception(Snooze(until)).until == until


@pytest.mark.parametrize(("after", "kept"), [(-5, timedelta(0)), (1e9, timedelta(days=365))])
def test_what_the_queue_would_refuse_is_brought_into_bounds(after: float, kept: timedelta) -> None:
    assert faults.from_exception(Retry(after=after)).retry_after == kept


def test_anything_else_is_retried_with_type_and_message() -> None:
    fault = faults.from_exception(ZeroDivisionError("by zero"))
    assert (fault.outcome, fault.error) == ("retry", "ZeroDivisionError: by zero")
    assert faults.from_exception(ValueError()).error == "ValueError"


def test_errors_are_bounded() -> None:
    assert len(faults.from_exception(ValueError("x" * 10_000)).error) == faults.LONGEST_ERROR


def test_an_error_that_cannot_be_told_is_told_all_the_same() -> None:
    class Mute(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert "cannot be read" in faults.from_exception(Mute()).error


def test_invalid_payload_is_dead_and_names_fields_never_values() -> None:
    fault = faults.invalid_payload(refused({"lines": [{"price": "canary"}, {"price": -4711}, {}]}))
    assert fault.outcome == "dead"
    assert "lines.0.price: " in fault.error
    assert "lines.1.price: is not valid" in fault.error
    assert "lines.2.price: Field required" in fault.error
    assert "canary" not in fault.error
    assert "4711" not in fault.error


def test_a_handler_s_own_validation_error_holds_no_values_either() -> None:
    fault = faults.from_exception(refused({"lines": [{"price": "canary"}]}))
    assert fault.outcome == "retry"
    assert "canary" not in fault.error


@pytest.mark.parametrize(
    "fault",
    [
        faults.Fault("retry", "e \ud800", "r", timedelta(seconds=3)),
        faults.Fault("snooze", until=datetime(2030, 1, 1, tzinfo=UTC)),
        faults.Fault("snooze", until=timedelta(minutes=5)),
        faults.Fault("dead", "x"),
    ],
)
def test_a_child_tells_its_fault_unchanged(fault: faults.Fault) -> None:
    told = faults.from_wire(faults.to_wire(fault))
    assert told.error == fault.error.replace("\ud800", "?")
    assert (told.outcome, told.reason, told.retry_after, told.until) == (
        fault.outcome,
        fault.reason,
        fault.retry_after,
        fault.until,
    )
