from datetime import timedelta
from typing import Annotated

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue_operator.resources.durations import LONGEST, PATTERN, Span, parse, render


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0),
        ("500ms", 0.5),
        ("30s", 30),
        ("2m", 120),
        ("1h30m", 5400),
        ("7d", 604_800),
        ("1d2h3m4s5ms", 93_784.005),
        ("90s", 90),
        ("3650d", 315_360_000),
    ],
)
def test_reads(text: str, seconds: float) -> None:
    assert parse(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "30",
        "s",
        "1 m",
        "-1s",
        "1.5h",
        "30S",
        "1m1h",
        "1s1s",
        " 1s",
        "1s\n",
        "\u0661s",
        "10 parsecs",
        "1e3s",
        "0x1s",
    ],
)
def test_refuses_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration; write e\.g\. 30s, 2m, 1h"):
        parse(text)


def test_refuses_what_is_longer_than_anybody_needs() -> None:
    with pytest.raises(ValueError, match="is too long; the most is 3650d"):
        parse("999999999d")


@given(st.integers(0, LONGEST // timedelta(milliseconds=1)))
def test_what_is_written_is_read_back(milliseconds: int) -> None:
    value = timedelta(milliseconds=milliseconds)
    assert parse(render(value)) == value


@given(st.one_of(st.from_regex(PATTERN), st.text(alphabet="0123456789dhms .-", max_size=12), st.text(max_size=8)))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        value = parse(text)
    except ValueError:
        return
    assert timedelta(0) <= value <= LONGEST


def test_finer_than_a_millisecond_is_written_rounded_up() -> None:
    assert render(timedelta(microseconds=1)) == "1ms"


class Holder(pydantic.BaseModel):
    span: Annotated[Span, pydantic.Field()]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("99ms", "is too short; the least is 100ms"),
        ("8d", "is too long; the most is 7d"),
        (30, "is not a duration"),
        (None, "is not a duration"),
        (True, "is not a duration"),
        (["30s"], "is not a duration"),
    ],
)
def test_a_field_holds_its_bounds(value: object, message: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=message):
        Holder.model_validate({"span": value})


def test_a_field_is_written_as_it_is_read() -> None:
    assert Holder.model_validate({"span": "90s"}).model_dump_json() == '{"span":"1m30s"}'
