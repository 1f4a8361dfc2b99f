"""migrate."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobqueue.cli.failure import Refused
from jobqueue.cli.place import AsJson, Dsn, DsnDir, Schema, connection
from jobqueue.cli.writing import write, write_json

if TYPE_CHECKING:
    import psycopg


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("migrate")(migrate)


def migrate(
    dsn: Dsn = None,
    dsn_dir: DsnDir = None,
    schema: Schema = "jobqueue",
    role_prefix: Annotated[
        str,
        typer.Option("--role-prefix", help="Roles are PREFIX_producer, PREFIX_worker, …; they belong to the server."),
    ] = "jobqueue",
    classes: Annotated[
        list[str] | None,
        typer.Option("--class", metavar="NAME", help="Register this job class, if it is new. May be given many times."),
    ] = None,
    manifest: Annotated[
        Path | None, typer.Option("--manifest", metavar="FILE", help="Register the classes and limits of a manifest.")
    ] = None,
    check: Annotated[  # noqa: FBT002 - an option
        bool, typer.Option("--check", help="Change nothing; exit status 2 unless the schema fits this release.")
    ] = False,
    as_json: AsJson = False,  # noqa: FBT002 - an option
) -> None:
    """Create or upgrade the queue's tables, functions and roles; safe to repeat, and while workers run.

    Example: jobqueue migrate --class email --class reports
    """
    from jobqueue import migrate as migrations  # noqa: PLC0415 - the driver is heavy; --help needs none

    if check:
        if classes or manifest is not None:
            raise Refused("--check: changes nothing, so it takes no --class and no --manifest")
        with connection(dsn, dsn_dir, schema):
            _answer(schema, migrations.latest(), [], [], as_json=as_json)
        return
    if manifest is not None:
        _read_manifest(manifest, None)  # what is wrong with it is said before anything is changed
    with connection(dsn, dsn_dir, schema, check=False) as conn:
        applied = migrations.apply(conn, schema=schema, role_prefix=role_prefix)
        limits, settings = _read_manifest(manifest, _granted(conn, schema)) if manifest is not None else ({}, {})
        registered = _register(conn, schema, limits, {**{name: {} for name in classes or ()}, **settings})
    _answer(schema, migrations.latest(), applied, registered, as_json=as_json)


def _answer(schema: str, version: int, applied: list[str], registered: list[str], *, as_json: bool) -> None:
    if as_json:
        write_json({"schema": schema, "version": version, "applied": applied, "classes": registered})
        return
    for name in applied:
        write(f"applied {name}")
    write(f"schema {schema} is at version {version}" + ("" if applied else " (it was before)"))
    for name in registered:
        write(f"class {name} is registered")


def _register(
    conn: psycopg.Connection[Any], schema: str, limits: dict[str, int], settings: dict[str, dict[str, Any]]
) -> list[str]:
    from jobqueue import queue  # noqa: PLC0415

    with conn.transaction():
        for name, limit in limits.items():
            queue.set_downstream(conn, None, name, limit, schema=schema)
        for name, values in settings.items():
            queue.set_class(conn, None, name, values, schema=schema)
    return sorted(settings)


def _granted(conn: psycopg.Connection[Any], schema: str) -> int | None:
    from jobqueue import queue, signals  # noqa: PLC0415

    return signals.decode(queue.snapshot(conn, schema=schema)).database.connections


def _read_manifest(path: Path, connections: int | None) -> tuple[dict[str, int], dict[str, dict[str, Any]]]:
    """Ask whoever knows manifests (the operator's package) for the limits and class settings in a file.

    `connections` is what the server grants to ordinary users; a limit may be stated in terms of it.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415

    for point in entry_points(group="jobqueue.manifest"):
        limits, settings = point.load()(path, connections)
        return limits, settings
    raise Refused("--manifest: nothing here can read manifests", hint="pip install 'jobqueue-operator[local]'")
