"""From a command line to an exit status: whatever goes wrong becomes one line."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from jobqueue.errors import (
    ConfigurationError,
    InvalidInput,
    JobQueueError,
    QueueError,
    SchemaError,
    UnknownClass,
    UnknownDownstream,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FAILED = 1
WRONG = 2
_OURS_TO_MEND = (ConfigurationError, InvalidInput, SchemaError, UnknownClass, UnknownDownstream)


class Refused(JobQueueError):  # noqa: N818 - what the command says, not a fault of the queue
    """The command line asks for something that cannot be done. `hint` is a remedy; exit status 2."""

    status: ClassVar[int] = WRONG

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class Failed(Refused):
    """The command line is right, and what it asks for could not be done. `hint` is a remedy; exit status 1."""

    status = FAILED


def run(build: Callable[[], Callable[..., Any]], arguments: Sequence[str], *, name: str, as_json: bool) -> int:
    """Run one command line with the command that `build` returns; return its exit status."""
    try:
        status = build()(list(arguments), prog_name=name, standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader has gone (| head); leave nothing to flush at exit, and be as quiet as any filter.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except Exception as error:  # noqa: BLE001 - sorted into one line and a status
        return report(error, as_json=as_json)
    return status if isinstance(status, int) else 0


def report(error: Exception, *, as_json: bool) -> int:  # noqa: PLR0911 - one a kind of error
    """Write what went wrong to standard error; return the exit status."""
    if isinstance(error, typer.Exit):
        return int(error.exit_code)
    if isinstance(error, typer.Abort):
        return _say("stopped", None, FAILED, as_json=as_json)
    if isinstance(error, Refused):
        return _say(str(error), error.hint, error.status, as_json=as_json)
    if isinstance(error, JobQueueError):
        status = WRONG if isinstance(error, _OURS_TO_MEND) else FAILED
        message, hint = str(error), None
        # The database's hint comes in brackets behind its message.
        found = re.fullmatch(r"(.*) \((\w[^()]*)\)", message, re.DOTALL) if isinstance(error, QueueError) else None
        if found:
            message, hint = found[1], found[2]
        return _say(message, hint, status, as_json=as_json)
    if hasattr(error, "format_message"):  # usage, as the parser says it
        context = getattr(error, "ctx", None)
        hint = f"{context.command_path} --help" if context is not None else None
        return _say(error.format_message(), hint, WRONG, as_json=as_json)
    if isinstance(error, OSError):
        named = error.filename is not None  # a file that the command line asks for
        message = f"{error.filename}: {error.strerror}" if named else str(error.strerror or error)
        return _say(message, None, WRONG if named else FAILED, as_json=as_json)
    if isinstance(error, UnicodeEncodeError):
        return _say("an argument is not valid UTF-8", None, WRONG, as_json=as_json)
    return _from_driver(error, as_json=as_json)


def _from_driver(error: Exception, *, as_json: bool) -> int:
    import psycopg  # noqa: PLC0415 - heavy, and only here

    if not isinstance(error, psycopg.Error):
        if os.environ.get("JOBQUEUE_TRACEBACK"):
            raise error
        # Not its message: nobody has checked what that may quote.
        hint: str | None = "please report it, with what JOBQUEUE_TRACEBACK=1 shows"
        return _say(f"this is a mistake in jobqueue: {type(error).__name__}", hint, FAILED, as_json=as_json)
    message = error.diag.message_primary or str(error).partition("\n")[0] or type(error).__name__
    hint = None
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        hint = "grant the login one of the queue's roles: jobqueue_producer, _worker, _operator, _reader or _support"
    return _say(f"database: {message}", hint, FAILED, as_json=as_json)


def _say(message: str, hint: str | None, status: int, *, as_json: bool) -> int:
    if as_json:
        sys.stderr.write(json.dumps({"error": message, "hint": hint}, ensure_ascii=False) + "\n")
    else:
        sys.stderr.write("".join(f"error: {line}\n" for line in message.splitlines()))
        if hint:
            sys.stderr.write(f"hint: {hint}\n")
    return status
