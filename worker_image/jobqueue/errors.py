"""Everything the queue can refuse, as one tree.

JobQueueError
├── ConfigurationError        settings, DSN, app or manifest are wrong; nothing was started
├── ConnectionFailed          the database cannot be reached or refused the login
├── SchemaError               the queue's tables are missing, older or newer than this code
└── QueueError                the database refused a call; one subclass for each SQLSTATE of class JQ
    ├── StaleLease        JQ001  the lease token is not the current one, or its time is over
    ├── UnknownClass      JQ002  the job class is not registered
    ├── InvalidInput      JQ003  an argument is out of bounds; the message names the field
    ├── KeyConflict       JQ004  the idempotency key exists with a different payload
    ├── UnknownJob        JQ005  no job with this id (or it is past its retention)
    ├── WorkerRefused     JQ006  the worker is unknown, retired or not admitted
    ├── StaleEpoch        JQ007  a newer operator leads this database
    ├── NotRedrivable     JQ008  the job is not in a state that can be redriven or redacted
    ├── UnknownDownstream JQ009  the downstream is not registered
    └── CapacityConflict  JQ010  limits that contradict each other

A tree of our own, because callers must tell «this job is no longer yours» from «the network is down» without
reading SQLSTATEs, and because a driver's exception carries the statement's parameters, which are payloads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import psycopg


class JobQueueError(Exception):
    """Root of every error this package raises on purpose."""


class ConfigurationError(JobQueueError):
    """Settings, DSN, app or manifest are wrong. The message names the field, the reason and the remedy."""


class ConnectionFailed(JobQueueError):  # noqa: N818 - reads as a fact in a log line, like every outcome here
    """The database cannot be reached, or it refused the login.

    `retry_helps`: whether waiting may mend it. False when the login was refused, or the database does not exist.
    """

    def __init__(self, message: str = "", *, retry_helps: bool = True) -> None:
        super().__init__(message)
        self.retry_helps = retry_helps


class SchemaError(JobQueueError):
    """The queue's tables are missing, older or newer than this code. The message names the command to run."""


class QueueError(JobQueueError):
    """The database refused a call. `sqlstate` is of class JQ."""

    sqlstate: ClassVar[str] = "JQ000"


class StaleLease(QueueError):  # noqa: N818
    """The lease token is not the current one, or its time is over: somebody else owns the job, or nobody does."""

    sqlstate = "JQ001"


class UnknownClass(QueueError):  # noqa: N818
    """The job class is not registered. Register it with `jobqueue migrate --class NAME` or a manifest."""

    sqlstate = "JQ002"


class InvalidInput(QueueError):  # noqa: N818
    """An argument is out of bounds. The message names the field and the limit."""

    sqlstate = "JQ003"


class KeyConflict(QueueError):  # noqa: N818
    """The idempotency key is taken by a job with a different payload."""

    sqlstate = "JQ004"


class UnknownJob(QueueError):  # noqa: N818
    """No job with this id: it never existed, its transaction rolled back, or its retention is over."""

    sqlstate = "JQ005"


class WorkerRefused(QueueError):  # noqa: N818
    """The worker is unknown, retired or not admitted under its downstream's limit."""

    sqlstate = "JQ006"


class StaleEpoch(QueueError):  # noqa: N818
    """A newer operator leads this database; whoever gets this must stop acting."""

    sqlstate = "JQ007"


class NotRedrivable(QueueError):  # noqa: N818
    """The job is in no state that this call accepts (waiting, running, done without force, or redacted)."""

    sqlstate = "JQ008"


class UnknownDownstream(QueueError):  # noqa: N818
    """The downstream is not registered in this database."""

    sqlstate = "JQ009"


class CapacityConflict(QueueError):  # noqa: N818
    """Limits contradict each other; the message shows the sum."""

    sqlstate = "JQ010"


MESSAGE_MOST = 2_000
"""Characters of a database's message that are passed on: it may be any number."""

_BY_SQLSTATE: dict[str, type[QueueError]] = {cls.sqlstate: cls for cls in QueueError.__subclasses__()}


def from_database(error: psycopg.Error) -> QueueError | None:
    """Return the typed error for a driver error of SQLSTATE class JQ, or None when it is not one of ours."""
    cls = _BY_SQLSTATE.get(error.sqlstate or "")
    if cls is None:
        return None
    primary = error.diag.message_primary or str(error)
    hint = error.diag.message_hint
    return cls((f"{primary} ({hint})" if hint else primary)[:MESSAGE_MOST])
