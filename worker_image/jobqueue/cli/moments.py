"""Times and durations as people type them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from jobqueue.cli.failure import Refused

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")


def duration(text: str, *, option: str) -> timedelta:
    """Read 90s, 10m, 1h30m, 7d, 500ms. Raises Refused naming the option."""
    if not text or _PART.sub("", text):
        raise Refused(f"{option}: {text!r} is no duration", hint="write 90s, 10m, 1h30m or 7d")
    try:
        return timedelta(seconds=sum(float(n) * _UNITS[unit] for n, unit in _PART.findall(text)))
    except OverflowError:
        raise Refused(f"{option}: {text!r} is too long", hint="write 90s, 10m, 1h30m or 7d") from None


def moment(text: str, *, option: str) -> datetime:
    """Read an ISO 8601 time with a zone, or +10m (from now) or -1h (ago). Raises Refused naming the option."""
    if text[:1] in "+-" and text[1:]:
        span = duration(text[1:], option=option)
        try:
            return datetime.now(UTC) + (span if text[0] == "+" else -span)
        except OverflowError:
            raise Refused(f"{option}: {text!r} is too far away", hint="write +10m, +7d or -1h") from None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Refused(f"{option}: {text!r} is no time", hint="write 2030-01-31T08:00:00Z, or +10m, or -1h") from None
    if found.tzinfo is None:
        full = found.isoformat()  # a date alone takes no zone
        raise Refused(f"{option}: {text!r} has no time zone", hint=f"write {full}Z or {full}+01:00")
    try:
        return found.astimezone(UTC)
    except OverflowError:
        raise Refused(f"{option}: {text!r} is too far away", hint="write 2030-01-31T08:00:00Z, or -1h") from None
