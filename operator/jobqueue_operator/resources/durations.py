"""Durations as people write them: 500ms, 30s, 2m, 1h30m, 7d."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from jobqueue_operator.resources import cel

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))
"""Units, longest first, in milliseconds: the resolution of a duration."""

_DIGITS = {"d": 4, "h": 5, "m": 7, "s": 9, "ms": 9}
PATTERN = "^" + "".join(rf"([0-9]{{1,{most}}}{unit})?" for unit, most in _DIGITS.items()) + "$"
"""What `parse` takes, for a schema: the empty text apart, and with no more digits than `LONGEST` has in each unit."""

_DURATION = re.compile("".join(rf"(?:([0-9]{{1,9}}){unit})?" for unit, _ in _UNITS))

LONGEST = timedelta(days=3650)
"""The longest duration that any field takes."""


def parse(text: str) -> timedelta:
    """Read a duration such as "1h30m". Units d, h, m, s, ms, each at most once and in this order.

    Raises ValueError when the text is not a duration, or is longer than `LONGEST`.
    """
    match = _DURATION.fullmatch(text) if text else None
    if match is None:
        raise ValueError("is not a duration; write e.g. 30s, 2m, 1h")
    total = sum(int(n) * size for n, (_, size) in zip(match.groups(default="0"), _UNITS, strict=True))
    if total > LONGEST // timedelta(milliseconds=1):
        raise ValueError(f"is too long; the most is {render(LONGEST)}")
    return timedelta(milliseconds=total)


def render(value: timedelta) -> str:
    """Write a duration so that `parse` reads it back; finer than a millisecond is rounded up."""
    left = -(-value // timedelta(milliseconds=1))
    parts = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def between(shortest: str, longest: str) -> BeforeValidator:
    """Return a validator that reads a duration and holds it within these bounds, both included."""
    low, high = parse(shortest), parse(longest)

    def read(value: Any) -> timedelta:
        if isinstance(value, timedelta):  # a default, or a value read before
            found = value
        elif isinstance(value, str):
            found = parse(value)
        else:
            raise ValueError("is not a duration; write e.g. 30s, 2m, 1h")  # noqa: TRY004 - reported by field
        if found < low:
            raise ValueError(f"is too short; the least is {shortest}")
        if found > high:
            raise ValueError(f"is too long; the most is {longest}")
        return found

    return BeforeValidator(read)


def well_formed(field: str) -> str:
    """Return the CEL expression that tells whether a field's text is a duration, so that reading it cannot fail."""
    return f'{field} != "" && {field}.matches({cel.quoted(PATTERN)})'


def at_most(less: str, more: str) -> str:
    """Return the rule that one field's duration is at most another's. What is no duration is another rule's matter."""
    return f"!({well_formed(less)} && {well_formed(more)}) || {cel.parsed(less)} <= {cel.parsed(more)}"


def _schema(shortest: str, longest: str) -> WithJsonSchema:
    """Say the same as `between` in a schema."""
    low, high = cel.span(parse(shortest)), cel.span(parse(longest))
    rule = cel.Rule(
        f"{well_formed('self')} && [{cel.parsed('self')}].all(span, {low} <= span && span <= {high})",
        f"is not a duration from {shortest} to {longest}; write e.g. 500ms, 30s, 2m, 1h30m or 7d",
    )
    # Longer than any that matches, which is what bounds the rule's cost.
    return WithJsonSchema({"type": "string", "pattern": PATTERN, "maxLength": 40} | cel.rules(rule))


_SERIAL: PlainSerializer = PlainSerializer(render, return_type=str)

Span = Annotated[timedelta, between("100ms", "7d"), _SERIAL, _schema("100ms", "7d")]
"""The length of some work or wait: 100 ms to a week."""
LeaseSpan = Annotated[timedelta, between("100ms", "1d"), _SERIAL, _schema("100ms", "1d")]
"""A lease: longer than a day would hide a lost worker's job for a day."""
Pause = Annotated[timedelta, between("0s", "7d"), _SERIAL, _schema("0s", "7d")]
"""A wait that may be none at all."""
Retention = Annotated[timedelta, between("1m", "3650d"), _SERIAL, _schema("1m", "3650d")]
"""How long something is kept."""
