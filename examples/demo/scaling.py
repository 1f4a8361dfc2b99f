"""How the class that starts from zero fared: when it woke, how old its oldest job became, how many workers it had.

Ages come from the queue's own record of every job's first attempt, not from looks now and then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

CLASS = "fast"
"""The class that begins and ends at zero."""


@dataclass(frozen=True)
class Scaling:
    """Seconds, but for `most` and `late`."""

    target: float = 0.0
    oldest: float = 0.0
    """The longest that any job waited, once it was due."""
    late: float = 0.0
    """The share of the time in which some job waited for longer than the target."""
    woken: float | None = None
    """From the burst's commit until the first worker's process was there."""
    most: int = 0
    """Workers at once."""
    at_zero: float | None = None
    """From the end of the last job until no worker was left; None when some stayed."""


def share_late(waits: Sequence[tuple[float, float]], target: float) -> float:
    """Return the share of the time in which the oldest job that waited was older than the target.

    `waits`: when each job was due and when it started, in seconds. The time is from the first due to the last started.
    """
    if not waits:
        return 0.0
    whole = max(started for _, started in waits) - min(due for due, _ in waits)
    late, until = 0.0, float("-inf")
    for begin, end in sorted((due + target, started) for due, started in waits if started > due + target):
        late += max(end - max(begin, until), 0.0)
        until = max(until, end)
    return late / whole if whole > 0 else 0.0


def read_waits(conn: psycopg.Connection[Any]) -> list[tuple[float, float]]:
    """Read when each job of the class was due, and when its first attempt started, in seconds since the epoch."""
    return conn.execute(
        "SELECT extract(epoch FROM j.created_at)::float8, extract(epoch FROM min(a.started_at))::float8"
        "  FROM jobqueue.jobs j JOIN jobqueue.attempts a ON a.job_id = j.id"
        " WHERE j.class = %s GROUP BY j.id, j.created_at",
        [CLASS],
    ).fetchall()
