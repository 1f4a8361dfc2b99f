"""Minimums that hold at known times: from each firing of a cron expression, for a while."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from cronsim import CronSim

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jobqueue_operator.resources.job_class import ScheduledMinimum

MINUTE = 60


def highest(schedule: Iterable[ScheduledMinimum], now: float) -> ScheduledMinimum | None:
    """Return the highest of the minimums that hold at `now` (seconds since the epoch), or None."""
    return max((entry for entry in schedule if holds(entry, now)), key=lambda entry: entry.min, default=None)


def holds(entry: ScheduledMinimum, now: float) -> bool:
    """Whether the expression fired within the entry's `for` before `now`.

    The expression is read on the zone's wall clock, as Debian's cron does: a time that a change of the clocks skips
    fires at the change, and one that it repeats fires once. `for` is real time.
    """
    try:
        since = int((now - entry.for_.total_seconds()) // MINUTE)
        fired = _first(entry.cron, entry.time_zone, since)
    except (OverflowError, ValueError, OSError):  # a time that no calendar has
        return False
    return fired is not None and fired <= now < fired + entry.for_.total_seconds()


@lru_cache(maxsize=4096)  # it is asked every tick, and changes once a minute
def _first(cron: str, time_zone: str, minute: int) -> float | None:
    """Return when an expression first fires after a minute of the epoch."""
    start = datetime.fromtimestamp(minute * MINUTE, UTC).astimezone(ZoneInfo(time_zone))
    found = next(CronSim(cron, start), None)
    return found.timestamp() if found is not None else None
