"""sweep and maintain: what workers do by themselves, now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobqueue.cli.place import AsJson, Dsn, DsnDir, Schema, connection
from jobqueue.cli.writing import write, write_json

if TYPE_CHECKING:
    import typer


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("sweep")(sweep)
    app.command("maintain")(maintain)


def sweep(
    dsn: Dsn = None,
    dsn_dir: DsnDir = None,
    schema: Schema = "jobqueue",
    as_json: AsJson = False,  # noqa: FBT002 - an option
) -> None:
    """Take over expired leases now; workers do it about once a second."""
    with connection(dsn, dsn_dir, schema) as conn:
        from jobqueue import queue  # noqa: PLC0415 - the driver is heavy; --help needs none

        done = queue.sweep(conn, schema=schema)
    if as_json:
        write_json(done._asdict())
    else:
        write(f"{done.requeued} requeued, {done.dead} dead, {done.cancelled} cancelled, {done.unparked} unparked")


def maintain(
    dsn: Dsn = None,
    dsn_dir: DsnDir = None,
    schema: Schema = "jobqueue",
    as_json: AsJson = False,  # noqa: FBT002 - an option
) -> None:
    """Add partitions ahead and remove what is past its retention, now; workers do it every few minutes."""
    with connection(dsn, dsn_dir, schema) as conn:
        from jobqueue import queue  # noqa: PLC0415 - the driver is heavy; --help needs none

        done = queue.maintain(conn, schema=schema)
    if as_json:
        write_json([d._asdict() for d in done])
        return
    for each in done:
        write(f"{each.action}: {each.detail} ({each.rows})")
    if not done:
        write("nothing to do")
