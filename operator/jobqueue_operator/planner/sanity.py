"""Facts that cannot be true: named, so that a class holds what it has instead of acting on them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobqueue_operator.planner.facts import ClassFacts

MOST = 1e15
"""Nothing that is counted or timed here reaches this."""


_NUMBER = frozenset({int, float})


def complaint(seen: ClassFacts) -> str | None:
    """Return what is wrong with a class's facts, or None."""
    for name, value in _numbers(seen):
        if type(value) in _NUMBER and 0 <= value <= MOST:  # nearly always so, and quickly told
            continue
        # A damaged record may hold anything.
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"{name} is {type(value).__name__}, not a number"
        if math.isnan(value) or not 0 <= value <= MOST:
            return f"{name} is {value:g}"
    if seen.arrivals.tick <= 0:
        return "arrivals.tick is 0"
    if seen.attempts.window <= 0:
        return "attempts.window is 0"
    return None


def _numbers(seen: ClassFacts) -> Iterator[tuple[str, Any]]:
    yield from (
        ("ready", seen.ready),
        ("blocked", seen.blocked),
        ("unsupported", seen.unsupported),
        ("blocked_key", seen.blocked_key),
        ("blocked_tenant", seen.blocked_tenant),
        ("oldest_age", seen.oldest_age),
        ("scheduled", seen.scheduled),
        ("in_flight", seen.in_flight),
        ("expired", seen.expired),
        ("dead", seen.dead),
    )
    arrivals, attempts = seen.arrivals, seen.attempts
    yield from (
        ("arrivals.tick", arrivals.tick),
        ("arrivals.last", arrivals.last),
        ("arrivals.before", arrivals.before),
        ("arrivals.in_20s", arrivals.in_20s),
        ("arrivals.in_60s", arrivals.in_60s),
        ("attempts.window", attempts.window),
        ("attempts.failed", attempts.failed),
    )
    for age in seen.ages:
        yield "ages", age
    for horizon, count in seen.due_soon:
        yield "due_soon", horizon
        yield "due_soon", count
    for number in attempts.lately:
        yield "attempts.lately", number
    for name, spans in (("finished", attempts.finished), ("running", attempts.running)):
        for span in spans:
            yield f"attempts.{name}", span.longest
            yield f"attempts.{name}", span.count
            yield f"attempts.{name}", span.seconds
