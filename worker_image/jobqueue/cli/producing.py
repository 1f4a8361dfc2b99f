"""enqueue."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from itertools import islice
from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from jobqueue.cli.failure import Refused
from jobqueue.cli.moments import moment
from jobqueue.cli.place import AsJson, Dsn, DsnDir, Schema, connection
from jobqueue.cli.writing import write, write_json
from jobqueue.errors import InvalidInput, KeyConflict, UnknownClass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobqueue.queue import NewJob

BATCH = 1000  # lines a statement; a file is one transaction
_FIELDS = {
    "class": str,
    "kind": str,
    "payload": object,
    "version": int,
    "key": str,
    "run_after": str,
    "priority": int,
    "max_attempts": int,
    "tenant": str,
    "concurrency_key": str,
    "correlation_id": str,
    "actor_id": str,
    "trace_context": dict,
}


_NEEDED = ("class", "kind", "payload")
_JSON_TYPES: dict[type, str] = {
    str: "text",
    int: "a whole number",
    float: "a number with a fraction",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("enqueue")(enqueue)


def enqueue(
    class_: Annotated[str | None, typer.Argument(metavar="CLASS", help="Job class, the pool that runs it.")] = None,
    kind: Annotated[str | None, typer.Argument(metavar="KIND", help="The handler's name.")] = None,
    payload: Annotated[str | None, typer.Argument(metavar="PAYLOAD", help="JSON, or - for standard input.")] = None,
    many: Annotated[
        Path | None,
        typer.Option(
            "--many",
            metavar="FILE",
            help="A JSON object a line (class, kind, payload, version, key, …), or - for standard input; all or none.",
        ),
    ] = None,
    version: Annotated[int, typer.Option(help="Version of the payload's schema.", min=0, max=2**31 - 1)] = 1,
    key: Annotated[str | None, typer.Option(help="Idempotency key within the kind.")] = None,
    run_after: Annotated[str | None, typer.Option(metavar="TIME", help="Not before: an ISO time, or +10m.")] = None,
    priority: Annotated[int, typer.Option(help="Higher first.", min=-100, max=100)] = 0,
    max_attempts: Annotated[int | None, typer.Option(help="Attempts. Default: the class's.", min=1, max=1000)] = None,
    tenant: Annotated[str | None, typer.Option(help="Whose job it is.")] = None,
    concurrency_key: Annotated[str | None, typer.Option(help="Jobs of a class with the same key take turns.")] = None,
    correlation_id: Annotated[str | None, typer.Option(help="Carried to the handler and the logs.")] = None,
    actor: Annotated[str | None, typer.Option(help="Who asked for it; checked when the job runs.")] = None,
    dsn: Dsn = None,
    dsn_dir: DsnDir = None,
    schema: Schema = "jobqueue",
    as_json: AsJson = False,  # noqa: FBT002 - an option
) -> None:
    """Enqueue one job, or many from a file.

    Example: jobqueue enqueue email invoice.email '{"invoice_id": 7}' --key invoice-7

    Example: jobqueue enqueue --many jobs.ndjson
    """
    if many is not None:
        if class_ is not None:
            raise Refused("--many: takes no CLASS, KIND and PAYLOAD", hint="each line of the file names its own")
        with _open(many) as lines, connection(dsn, dsn_dir, schema) as conn:
            counts = _enqueue_lines(conn, lines, schema)
        if as_json:
            write_json(counts)
        else:
            write(
                f"enqueued {counts['created']} jobs" + (f", {counts['existing']} existed" if counts["existing"] else "")
            )
        return
    if class_ is None or kind is None or payload is None:
        raise Refused("enqueue: CLASS, KIND and PAYLOAD are needed", hint="jobqueue enqueue email invoice.email '{}'")
    value = _parse(sys.stdin.read() if payload == "-" else payload, "payload")
    due = moment(run_after, option="--run-after") if run_after is not None else None
    with connection(dsn, dsn_dir, schema) as conn:
        from jobqueue import queue  # noqa: PLC0415 - the driver is heavy; --help needs none

        answer = queue.enqueue(
            conn,
            class_,
            kind,
            value,
            version=version,
            key=key,
            run_after=due,
            priority=priority,
            max_attempts=max_attempts,
            tenant=tenant,
            concurrency_key=concurrency_key,
            correlation_id=correlation_id,
            actor_id=actor,
            schema=schema,
        )
    if as_json:
        write_json(answer._asdict())
    else:
        write(f"job {answer.id}" + ("" if answer.created else " (it existed)"))


def _open(path: Path) -> TextIO | nullcontext[TextIO]:
    return nullcontext(sys.stdin) if str(path) == "-" else path.open(encoding="utf-8")


def _enqueue_lines(conn: Any, lines: TextIO, schema: str) -> dict[str, int]:
    from jobqueue import queue  # noqa: PLC0415

    created = total = 0
    numbered = _numbered(lines)
    with conn.transaction():
        while batch := list(islice(numbered, BATCH)):
            try:
                answers = queue.enqueue_many(conn, [job for _, job in batch], schema=schema)
            except (InvalidInput, UnknownClass, KeyConflict) as error:
                raise _at_line(error, batch) from None
            total += len(answers)
            created += sum(a.created for a in answers)
    return {"created": created, "existing": total - created}


def _numbered(lines: TextIO) -> Iterator[tuple[int, NewJob]]:
    try:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, _job(line, number)
    except UnicodeDecodeError as error:
        raise Refused(f"--many: not UTF-8 ({error.reason})", hint="convert the file: iconv -t utf-8") from None


def _job(line: str, number: int) -> NewJob:
    from jobqueue.queue import NewJob  # noqa: PLC0415

    at = f"line {number}"
    value = _parse(line, at)
    if not isinstance(value, dict):
        raise Refused(f"{at}: not an object", hint='write {"class": …, "kind": …, "payload": …} on each line')
    for name, given in value.items():
        wanted = _FIELDS.get(name)
        if wanted is None:
            raise Refused(f"{at}: {name[:50]!r} is no field of a job", hint=f"known are {', '.join(_FIELDS)}")
        if wanted is int and type(given) is int and not -(2**31) <= given < 2**31:
            raise Refused(f"{at}: {name}: out of range", hint="write a number below 2147483648")
        if given is not None and (not isinstance(given, wanted) or (wanted is int and isinstance(given, bool))):
            raise Refused(
                f"{at}: {name}: must be {_JSON_TYPES[wanted]}, not {_JSON_TYPES.get(type(given), 'a number')}",
                hint=f"write {_JSON_TYPES[wanted]}, or leave {name} out" if name not in _NEEDED else None,
            )
    for name in _NEEDED:
        if name not in value:
            raise Refused(f"{at}: {name}: missing", hint='write {"class": …, "kind": …, "payload": …} on each line')
    if value.get("run_after") is not None:
        value["run_after"] = moment(value["run_after"], option=f"{at}: run_after")
    given = {name: field for name, field in value.items() if field is not None or name == "payload"}
    return NewJob(class_=given.pop("class", ""), **given)


def _parse(text: str, at: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise Refused(
            f"{at}: not JSON: {error.msg} at character {error.pos + 1}", hint="quote it: '{\"id\": 7}'"
        ) from None
    except (ValueError, RecursionError) as error:
        raise Refused(f"{at}: not JSON that can be stored: {str(error).partition(';')[0][:200]}") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _at_line(error: Exception, batch: list[tuple[int, NewJob]]) -> Exception:
    """Turn `jobs[3].kind: …` into the line of the file."""
    text = str(error)
    if text.startswith("jobs["):
        index, _, rest = text.removeprefix("jobs[").partition("].")
        if index.isdigit():
            return type(error)(f"line {batch[int(index)][0]}: {rest}")
    return error
