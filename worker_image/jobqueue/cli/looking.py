"""stats, list and show."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from jobqueue.cli.place import AsJson, Dsn, DsnDir, Id, Schema, connection
from jobqueue.cli.writing import printable, show_seconds, show_time, write, write_json, write_table
from jobqueue.errors import UnknownClass, UnknownJob

if TYPE_CHECKING:
    import psycopg

    from jobqueue.signals.snapshot import ClassSnapshot

Status = Literal["pending", "running", "done", "dead", "cancelled"]
ShowPayload = Annotated[bool, typer.Option("--show-payload", help="The payload too; it may hold what few may see.")]
# Without the payload: a reader may not see it, and asks for these alone.
COLUMNS = (
    "id, class, kind, version, status, attempts, max_attempts, priority, run_after, leased_until, key, tenant, "
    "concurrency_key, actor_id, correlation_id, last_error, reason, created_at, started_at, finished_at"
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("stats")(stats)
    app.command("list")(list_)
    app.command("show")(show)


def stats(
    dsn: Dsn = None,
    dsn_dir: DsnDir = None,
    schema: Schema = "jobqueue",
    as_json: AsJson = False,  # noqa: FBT002 - an option
) -> None:
    """Say how each class does: depth, oldest age against its target, in flight, dead, and what is blocked by what.

    Example: jobqueue stats
    """
    with connection(dsn, dsn_dir, schema) as conn:
        from jobqueue import queue, signals  # noqa: PLC0415 - heavy

        facts = queue.snapshot(conn, schema=schema)
    if as_json:
        write_json(facts)
        return
    found = signals.decode(facts)
    write_table(
        ("CLASS", "READY", "OLDEST", "TARGET", "IN FLIGHT", "SCHEDULED", "BLOCKED", "DEAD", "WORKERS"),
        [
            (
                c.class_ + (" (paused)" if c.paused else ""),
                ("~" if c.estimated else "") + str(c.ready),
                show_seconds(c.oldest_age_seconds) if c.ready else "-",
                show_seconds(c.target_age_seconds),
                str(c.in_flight) + (f" (+{c.expired} expired)" if c.expired else ""),
                ("~" if c.estimated else "") + str(c.scheduled),
                _blocked(c),
                str(c.dead),
                str(len(found.workers_of(c.class_))),
            )
            for c in found.classes
        ],
    )
    for d in found.downstreams:
        write(f"downstream {printable(d.downstream)}: {d.in_use} of {d.limit} units in use")


def _blocked(c: ClassSnapshot) -> str:
    parts = [
        f"{n} {why}"
        for n, why in (
            (c.blocked_unsupported, "unsupported"),
            (c.blocked_key, "by key"),
            (c.blocked_tenant, "by tenant limit"),
        )
        if n
    ]
    return ", ".join(parts) or "0"


def check_class(conn: psycopg.Connection[Any], schema: str, class_: str) -> None:
    """Raise UnknownClass, with the names that there are, when a class that was asked for does not exist."""
    from jobqueue import queue  # noqa: PLC0415 - heavy

    known = [str(found["class"]) for found in queue.snapshot(conn, schema=schema)["classes"]]
    if class_ not in known:
        raise UnknownClass(f"class: there is no class {class_[:100]!r} (the classes are: {', '.join(known)[:500]})")


def list_(
    status: Annotated[Status | None, typer.Option(help="Only jobs of this status.")] = None,
    class_: Annotated[str | None, typer.Option("--class", metavar="NAME", help="Only this class.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only this kind.")] = None,
    key: Annotated[str | None, typer.Option(help="Only this idempotency key.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only this actor id.")] = None,
    correlation_id: Annotated[str | None, typer.Option(help="Only this correlation id.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="So many at most, the newest first.")] = 50,
    show_payload: ShowPayload = False,  # noqa: FBT002 - an option
    dsn: Dsn = None,
    dsn_dir: DsnDir = None,
    schema: Schema = "jobqueue",
    as_json: AsJson = False,  # noqa: FBT002 - an option
) -> None:
    """List jobs, the newest first.

    Example: jobqueue list --status dead --class email
    """
    given = {
        "status": status,
        "class": class_,
        "kind": kind,
        "key": key,
        "tenant": tenant,
        "actor_id": actor,
        "correlation_id": correlation_id,
    }
    where = {column: value for column, value in given.items() if value is not None}
    with connection(dsn, dsn_dir, schema) as conn:
        jobs = _select(conn, schema, where, limit=limit, payload=show_payload)
        if class_ is not None and not jobs:
            check_class(conn, schema, class_)
    if as_json:
        write_json(jobs)
        return
    if not jobs:
        write("no jobs")
        return
    head = ["ID", "CLASS", "KIND", "STATUS", "ATTEMPTS", "CREATED", "LAST ERROR"]
    write_table(
        head + ["PAYLOAD"] * show_payload,
        [
            [
                str(j["id"]),
                printable(j["class"]),
                printable(j["kind"]),
                j["status"],
                f"{j['attempts']}/{j['max_attempts']}",
                show_time(j["created_at"]),
                printable(j["last_error"])[:80],
            ]
            + [printable(j.get("payload"))] * show_payload
            for j in jobs
        ],
    )


def show(
    id_: Id,
    show_payload: ShowPayload = False,  # noqa: FBT002 - an option
    dsn: Dsn = None,
    dsn_dir: DsnDir = None,
    schema: Schema = "jobqueue",
    as_json: AsJson = False,  # noqa: FBT002 - an option
) -> None:
    """Show one job with all its attempts.

    Example: jobqueue show 12345
    """
    with connection(dsn, dsn_dir, schema) as conn:
        jobs = _select(conn, schema, {"id": id_}, limit=1, payload=show_payload)
        if not jobs:
            raise UnknownJob(f"there is no job {id_}, or its retention is over")
        attempts = _attempts(conn, schema, id_)
    job = jobs[0]
    if as_json:
        write_json({**job, "history": attempts})
        return
    width = max(len(name) for name in job)
    for name, value in job.items():
        if value is not None:
            shown = show_time(value) if isinstance(value, datetime) else printable(value)
            write(f"{name.ljust(width)}  {shown}")
    if attempts:
        write("")
        write_table(
            ("ATTEMPT", "OUTCOME", "WORKER", "STARTED", "TOOK", "ERROR"),
            [
                (
                    f"{a['number']}" + (f" (redrive {a['budget']})" if a["budget"] else ""),
                    a["outcome"],
                    printable(a["worker"]),
                    show_time(a["started_at"]),
                    show_seconds((a["finished_at"] - a["started_at"]).total_seconds()) if a["finished_at"] else "-",
                    printable(a["error"] or a["reason"]),
                )
                for a in attempts
            ],
        )


def _select(
    conn: psycopg.Connection[Any], schema: str, where: dict[str, Any], *, limit: int, payload: bool
) -> list[dict[str, Any]]:
    from psycopg import rows, sql  # noqa: PLC0415 - heavy

    conditions = [sql.SQL("{} = %s").format(sql.Identifier(column)) for column in where]
    statement = sql.SQL("SELECT {columns} FROM {schema}.jobs {where} ORDER BY id DESC LIMIT %s").format(
        columns=sql.SQL(COLUMNS + ", payload" if payload else COLUMNS),
        schema=sql.Identifier(schema),
        where=sql.SQL("WHERE ") + sql.SQL(" AND ").join(conditions) if conditions else sql.SQL(""),
    )
    with conn.cursor(row_factory=rows.dict_row) as cursor:
        return cursor.execute(statement, [*where.values(), limit]).fetchall()


def _attempts(conn: psycopg.Connection[Any], schema: str, id_: int) -> list[dict[str, Any]]:
    from psycopg import rows, sql  # noqa: PLC0415 - heavy

    statement = sql.SQL(
        "SELECT number, budget, outcome, reason, error, worker, started_at, finished_at FROM {}.attempts"
        " WHERE job_id = %s ORDER BY started_at"
    ).format(sql.Identifier(schema))
    with conn.cursor(row_factory=rows.dict_row) as cursor:
        return cursor.execute(statement, [id_]).fetchall()
