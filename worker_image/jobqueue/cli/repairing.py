"""redrive, cancel and redact."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta  # noqa: TC003 - typer evaluates the annotations
from typing import Annotated, Any, Literal

import typer

from jobqueue.cli.failure import FAILED, Refused
from jobqueue.cli.looking import check_class
from jobqueue.cli.moments import duration, moment
from jobqueue.cli.place import AsJson, Dsn, DsnDir, Schema, connection, job_number
from jobqueue.cli.writing import write, write_json

Ids = Annotated[list[int], typer.Argument(metavar="ID", parser=job_number, help="Numbers of jobs.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("redrive")(redrive)
    app.command("cancel")(cancel)
    app.command("redact")(redact)


def redrive(
    ids: Annotated[
        list[int] | None, typer.Argument(metavar="ID", parser=job_number, help="Numbers of jobs; or give filters.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every job of --status, whatever its class.")] = False,  # noqa: FBT002
    class_: Annotated[str | None, typer.Option("--class", metavar="NAME", help="Filter: this class.")] = None,
    kind: Annotated[str | None, typer.Option(help="Filter: this kind.")] = None,
    error_like: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Filter: the last error is LIKE this, such as '%timeout%'.")
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Filter: ended at or after; ISO, or -1h.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Filter: ended before; ISO, or -1h.")] = None,
    status: Annotated[
        Literal["dead", "cancelled", "done"], typer.Option(help="Filter: ended as this; done needs --force.")
    ] = "dead",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="So many at most, the oldest first.")] = 1000,
    spread: Annotated[
        str, typer.Option(metavar="DURATION", help="Make them due at random moments within this.")
    ] = "0s",
    force: Annotated[bool, typer.Option("--force", help="Redrive jobs that are done, too.")] = False,  # noqa: FBT002
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, when filters are given.")] = False,  # noqa: FBT002
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what the filters find.")] = False,  # noqa: FBT002
    dsn: Dsn = None,
    dsn_dir: DsnDir = None,
    schema: Schema = "jobqueue",
    as_json: AsJson = False,  # noqa: FBT002 - an option
) -> None:
    """Bring dead or cancelled jobs back to pending, with a fresh budget of attempts.

    Effects that a job has recorded are not done twice. With filters it asks first, unless --yes is given.

    Example: jobqueue redrive --class email --error-like '%timeout%' --spread 10m
    """
    over = duration(spread, option="--spread")
    after = moment(since, option="--since") if since is not None else None
    before = moment(until, option="--until") if until is not None else None
    filters = {"class": class_, "kind": kind, "error": error_like, "since": after, "until": before}
    filtered = all_ or any(value is not None for value in filters.values())
    if bool(ids) == filtered:
        raise Refused("redrive: give either IDs or filters", hint="jobqueue redrive 7, or --class email, or --all")
    if status == "done" and not force:
        raise Refused("redrive: done jobs are redriven only by force", hint="add --force if they must run again")
    with connection(dsn, dsn_dir, schema) as conn:
        if ids:
            _redrive_ids(conn, schema, ids, over, force=force, as_json=as_json)
            return
        if class_ is not None:
            check_class(conn, schema, class_)
        number = 0 if yes else _count(conn, schema, status, filters, limit)
        if not yes and not dry_run and number:
            _ask(number, status)
        if not dry_run and (yes or number):
            from jobqueue import queue  # noqa: PLC0415 - the driver is heavy; --help needs none

            number = queue.redrive_where(
                conn,
                class_=class_,
                kind=kind,
                status=status,
                error_like=error_like,
                finished_after=after,
                finished_before=before,
                max_jobs=limit,
                spread=over,
                force=force,
                schema=schema,
            )
    if as_json:
        write_json({"jobs": number, "dry_run": dry_run})
    else:
        write(
            f"{'would redrive' if dry_run else 'redrove'} {number} jobs" + (" (the limit)" if number == limit else "")
        )


def _ask(number: int, status: str) -> None:
    if not sys.stdin.isatty():
        raise Refused(f"redrive: {number} {status} jobs, and nobody to ask", hint="add --yes, or look with --dry-run")
    # Not typer's: its prompt leaves a blank on standard output, which may be read as JSON.
    sys.stderr.write(f"Redrive {number} {status} jobs? [y/N]: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise typer.Abort


def _redrive_ids(conn: Any, schema: str, ids: list[int], spread: timedelta, *, force: bool, as_json: bool) -> None:
    from jobqueue import queue  # noqa: PLC0415 - the driver is heavy; --help needs none

    answers = queue.redrive(conn, ids, spread=spread, force=force, schema=schema)
    if as_json:
        write_json([a._asdict() for a in answers])
    else:
        for answer in answers:
            write(f"job {answer.id}: {answer.result}")
    if any(answer.result != "redriven" for answer in answers):
        raise typer.Exit(FAILED)


def _count(conn: Any, schema: str, status: str, filters: dict[str, str | datetime | None], limit: int) -> int:
    from psycopg import sql  # noqa: PLC0415 - heavy

    tests = {"class": "class = %s", "kind": "kind = %s", "error": "last_error LIKE %s"} | {
        "since": "finished_at >= %s",
        "until": "finished_at < %s",
    }
    given = {name: value for name, value in filters.items() if value is not None}
    statement = sql.SQL("SELECT count(*) FROM (SELECT 1 FROM {}.jobs WHERE {} LIMIT %s) found").format(
        sql.Identifier(schema), sql.SQL(" AND ".join(["status = %s", *(tests[name] for name in given)]))
    )
    row = conn.execute(statement, [status, *given.values(), limit]).fetchone()
    return int(row[0])


def cancel(
    ids: Ids,
    dsn: Dsn = None,
    dsn_dir: DsnDir = None,
    schema: Schema = "jobqueue",
    as_json: AsJson = False,  # noqa: FBT002 - an option
) -> None:
    """Cancel jobs: a pending one at once; a running one is asked to stop, and ends when its handler has.

    Exit status 1 when one of them does not exist; one that has ended is left as it is.

    Example: jobqueue cancel 12345
    """
    with connection(dsn, dsn_dir, schema) as conn:
        from jobqueue import queue  # noqa: PLC0415 - the driver is heavy; --help needs none

        with conn.transaction():
            answers = [(id_, queue.cancel(conn, id_, schema=schema)) for id_ in ids]
    if as_json:
        write_json([{"id": id_, "result": result} for id_, result in answers])
        return
    says = {
        "cancelled": "cancelled",
        "requested": "it runs; its worker is told to stop it",
        "finished": "it has ended already",
    }
    for id_, result in answers:
        write(f"job {id_}: {says[result]}")


def redact(
    ids: Ids,
    dsn: Dsn = None,
    dsn_dir: DsnDir = None,
    schema: Schema = "jobqueue",
    as_json: AsJson = False,  # noqa: FBT002 - an option
) -> None:
    """Remove what ended jobs said: payload, trace context, checkpoint and errors, for good.

    That they ran, when, and with which outcome stays. They cannot be redriven then.
    Exit status 1 when one of them does not exist; the others are redacted.

    Example: jobqueue redact 12345 12346
    """
    with connection(dsn, dsn_dir, schema) as conn:
        from jobqueue import queue  # noqa: PLC0415 - the driver is heavy; --help needs none

        number = queue.redact(conn, ids, schema=schema)
    if as_json:
        write_json({"jobs": number})
    else:
        asked = len(set(ids))
        write(f"redacted {number} jobs" + (f"; {asked - number} of {asked} do not exist" if number < asked else ""))
    if number < len(set(ids)):
        raise typer.Exit(FAILED)
