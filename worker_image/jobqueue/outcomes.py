"""What a handler raises to end its attempt other than by returning. They steer the job; they are not faults."""

from __future__ import annotations

from datetime import datetime, timedelta

__all__ = ["Dead", "Retry", "Snooze"]


class Outcome(Exception):  # noqa: N818 - raised to steer, not to report a fault
    """Root of the three."""


class Retry(Outcome):
    """Try again, after `after` (seconds or a timedelta), or after the class's backoff when it is None."""

    def __init__(self, reason: str = "", *, after: float | timedelta | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after = timedelta(seconds=after) if isinstance(after, int | float) else after


class Dead(Outcome):
    """Never succeeds: dead-letter the job now, whatever attempts are left."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Snooze(Outcome):
    """Not yet: run again at `until` (an aware datetime) or after it (a timedelta). The attempt is given back."""

    def __init__(self, until: datetime | timedelta, reason: str = "") -> None:
        if isinstance(until, datetime) and until.tzinfo is None:
            msg = "Snooze(until=…) takes an aware datetime; this one has no time zone"
            raise ValueError(msg)
        super().__init__(reason)
        self.until = until
        self.reason = reason
