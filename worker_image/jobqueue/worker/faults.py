"""What becomes of an attempt whose handler did not return: from an exception to an outcome of the queue."""

from __future__ import annotations

import inspect
import traceback
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Any, Literal

import psycopg
from pydantic import ValidationError

from jobqueue.outcomes import Dead, Retry, Snooze

LONGEST_ERROR = 2_000  # characters
LONGEST_RETRY = timedelta(days=365)  # what the queue accepts
WORKER_LOST = "worker lost"


@dataclass(frozen=True, slots=True)
class Fault:
    """How to end the attempt. `error` is bounded and holds no payload."""

    outcome: Literal["retry", "dead", "cancelled", "snooze", "release", "lost"]
    error: str = ""
    reason: str | None = None
    retry_after: timedelta | None = None
    until: datetime | timedelta | None = None


def from_exception(error: BaseException) -> Fault:
    """Judge what a handler raised: its own outcomes steer, everything else is retried."""
    if isinstance(error, Retry):
        after = None if error.after is None else min(max(error.after, timedelta(0)), LONGEST_RETRY)
        return Fault("retry", f"Retry: {error.reason}"[:LONGEST_ERROR], error.reason or None, after)
    if isinstance(error, Dead):
        return Fault("dead", f"Dead: {error.reason}"[:LONGEST_ERROR], error.reason or None)
    if isinstance(error, Snooze):
        return Fault("snooze", reason=error.reason or None, until=error.until)
    return Fault("retry", describe(error))


def describe(error: BaseException) -> str:
    """Return type and message, without what is known to carry data: pydantic's inputs, the database's details."""
    name = type(error).__qualname__
    if isinstance(error, ValidationError):
        return f"{name}: {fields(error)}"[:LONGEST_ERROR]
    if isinstance(error, psycopg.Error) and error.diag.message_primary:
        return f"{name}: {error.diag.message_primary}"[:LONGEST_ERROR]
    try:
        message = str(error)
    except Exception as broken:  # noqa: BLE001 - recording a failure must not fail
        message = f"(its message cannot be read: {type(broken).__qualname__})"
    return f"{name}: {message}"[:LONGEST_ERROR] if message else name


def fields(error: ValidationError) -> str:
    """Name the fields that are wrong and why, never their values."""
    told = error.errors(include_input=False, include_context=False, include_url=False)
    listed = [
        f"{'.'.join(map(str, each['loc'])) or 'payload'}: {_reason(each['type'], each['msg'])}" for each in told[:10]
    ]
    more = f"; and {len(told) - 10} more" if len(told) > 10 else ""  # noqa: PLR2004
    return "; ".join(listed) + more


def _reason(kind: str, message: str) -> str:
    # A validator's own ValueError may quote the value it refused.
    return "is not valid" if kind in {"value_error", "assertion_error"} else message


def invalid_payload(error: ValidationError) -> Fault:
    """Dead at once: trying again would not change the payload."""
    return Fault("dead", f"invalid payload: {fields(error)}"[:LONGEST_ERROR], "invalid payload")


def not_authorized(error: BaseException | None) -> Fault:
    """Dead: whoever asked for it may not have it done."""
    why = "" if error is None else f": {describe(error)}"
    return Fault("dead", f"not authorized{why}"[:LONGEST_ERROR], "not authorized")


def unless_allowed(answer: Any) -> Fault | None:
    """Return None when the application's check answered True; every other answer refuses, a forgotten return too."""
    if answer is True:
        return None
    if answer is False:
        return not_authorized(None)
    close_lazy(answer)
    return not_authorized(TypeError(f"the check answered with {type(answer).__name__}; it must return True or False"))


def check_ran(result: Any) -> None:
    """Raise Dead when a plain function returned what nothing will ever run: the job would be done without its work."""
    if close_lazy(result):
        raise Dead(
            f"the handler returned a {type(result).__name__}, which nothing runs; make it an async def (its decorators "
            "too), or finish the work before returning"
        )


def close_lazy(result: Any) -> bool:
    """Whether it is a coroutine, another awaitable or a generator; closed, so that it is not missed at its end."""
    lazy = inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)
    if lazy and hasattr(result, "close"):
        result.close()
    return lazy


def timed_out(seconds: float, where: str = "") -> Fault:
    """Return the outcome of an attempt that outran its timeout."""
    return Fault("retry", f"TimeoutError: ran longer than {seconds:g} s{where}", "timeout")


def worker_lost(how: str) -> Fault:
    """Return the outcome of an attempt whose process died under it: spent, and the job is a suspect from now on."""
    return Fault("retry", f"{WORKER_LOST}: {how}"[:LONGEST_ERROR], WORKER_LOST)


def place(error: BaseException) -> str | None:
    """Say where it was raised: file, line and function, for the log."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return None
    last = frames[-1]
    return f"{PurePath(last.filename).name}:{last.lineno} in {last.name}"


def stopped(why: str | None, timeout: float) -> Fault:
    """Return the outcome of a job that was stopped, by why it was."""
    if why == "timeout":
        return timed_out(timeout)
    if why == "cancel":
        return Fault("cancelled", "", "cancelled")
    if why == "drain":
        return Fault("release", reason="drain")
    return Fault("lost", "the lease ended or was lost")


def to_wire(fault: Fault) -> dict[str, Any]:
    """Return a fault as a child tells it to its runner."""
    until = fault.until
    return {
        "outcome": fault.outcome,
        "error": fault.error.encode(errors="replace").decode(),
        "reason": fault.reason,
        "retry_after": None if fault.retry_after is None else fault.retry_after.total_seconds(),
        "until": until.isoformat() if isinstance(until, datetime) else until and until.total_seconds(),
    }


def from_wire(told: dict[str, Any]) -> Fault:
    """Read what a child told."""
    after, until = told["retry_after"], told["until"]
    if isinstance(until, str):
        until = datetime.fromisoformat(until)
    elif until is not None:
        until = timedelta(seconds=until)
    return Fault(
        told["outcome"], told["error"], told["reason"], None if after is None else timedelta(seconds=after), until
    )
