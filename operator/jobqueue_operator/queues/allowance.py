"""How much databases may send. Pure: who counts and who cuts is `capped`."""

from __future__ import annotations

from dataclasses import dataclass, field

from jobqueue.errors import ConnectionFailed

MIB = 2**20
MOST = 16 * MIB
"""Bytes of one answer, a login's included. A snapshot of 50 classes with 10,000 workers takes 3.8 million."""
TOGETHER_MOST = 32 * MIB
"""Bytes of all answers that are under way, beyond which none is taken of more than `SMALL`."""
SMALL = MIB
WORK_MOST = 1.0
"""Seconds of a processor that reading one answer may take. libpq compares each setting with all that came before."""
WORK_SHARE = 0.5
"""What of the time reading may take where answers come without end."""
REMEDY = "see that host and port in the Secret, or the DSN, are those of the queue's own PostgreSQL"


class AnswerTooLarge(ConnectionFailed):
    """The server sent more than is taken. The connection is closed, and what came is thrown away."""


@dataclass(slots=True)
class UnderWay:
    """What has come of all answers that are not there as a whole yet."""

    size: int = 0


@dataclass(slots=True)
class Allowance:
    """Bytes that may still come: `most`, all of it again with every `renew`, and `per_second` as time goes by."""

    most: int = MOST
    per_second: float = 0.0
    together: UnderWay = field(default_factory=UnderWay)
    refusal: str = ""
    """Why no more is taken; stays so, as whoever sends too much once is not read any more."""
    _spent: float = 0.0
    _counted: int = 0
    """What of it counts among all that is under way."""
    _worked: float = 0.0
    _at: float | None = None

    def renew(self) -> None:
        """End an answer, so that another may come."""
        self._worked = 0.0
        self.together.size -= self._counted
        self._spent, self._counted = 0.0, 0

    def spend(self, size: int, now: float) -> bool:
        """Count bytes that came at `now`, in monotonic seconds. Return whether they may be handed on."""
        if self._at is not None and self.per_second:
            self._spent = max(self._spent - (now - self._at) * self.per_second, 0.0)
            self._worked = max(self._worked - (now - self._at) * WORK_SHARE, 0.0)
        self._at = now
        self._spent += size
        self._counted += size
        self.together.size += size
        if self._spent > self.most:
            over_time = f", or {self.per_second / MIB:g} MiB a second for long" if self.per_second else ""
            said = f"more than {self.most / MIB:g} MiB at once{over_time}, which no queue does"
            self.refusal = f"the database sent {said}, and was cut off; {REMEDY}"
        elif self._spent > SMALL and self.together.size > TOGETHER_MOST:
            said = f"more than {SMALL / MIB:g} MiB while all databases together sent more than {TOGETHER_MOST / MIB:g}"
            self.refusal = f"the database sent {said}, and was cut off; {REMEDY}"
        return not self.refusal

    def work(self, seconds: float) -> bool:
        """Count the time that reading takes. Return whether to go on."""
        self._worked += seconds
        if self._worked > WORK_MOST:
            said = f"what takes more than {WORK_MOST:g}s to read, which no queue does"
            self.refusal = self.refusal or f"the database sent {said}, and was cut off; {REMEDY}"
        return not self.refusal
