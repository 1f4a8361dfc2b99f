"""Where the queue is: the options that every command shares, and the connection they lead to."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

Dsn = Annotated[
    str | None,
    typer.Option("--dsn", metavar="DSN", help="libpq URL or key=value string; JOBQUEUE_DSN says the same."),
]
DsnDir = Annotated[
    Path | None,
    typer.Option(
        "--dsn-dir",
        metavar="DIR",
        help="Folder of files host, port, dbname, user, password, sslmode, sslrootcert; or JOBQUEUE_DSN_DIR.",
    ),
]
Schema = Annotated[str, typer.Option("--schema", envvar="JOBQUEUE_SCHEMA", help="Schema of the queue.")]


def job_number(text: str) -> int:
    """Read a job's number."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0  # noqa: PLR2004 - a bigint's digits
    if not 0 < number < 2**63:
        raise typer.BadParameter(f"{text[:40]!r} is no number of a job")
    return number


Id = Annotated[int, typer.Argument(metavar="ID", parser=job_number, help="The job's number.")]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]


@contextmanager
def connection(
    dsn: str | None, dsn_dir: Path | None, schema: str, *, check: bool = True
) -> Iterator[psycopg.Connection[Any]]:
    """Open a connection in autocommit mode; `check` that the schema is one that this release works with."""
    from jobqueue import connect, migrate  # noqa: PLC0415 - the driver is heavy; --help needs none

    info = connect.resolve(dsn, directory=dsn_dir)
    with connect.open_sync(info, application_name="jobqueue cli") as conn:
        if check:
            migrate.check(conn, schema=schema)
        yield conn
