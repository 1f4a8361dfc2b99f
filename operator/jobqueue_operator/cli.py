"""The commands that the operator adds to `jobqueue`, by the entry point group `jobqueue.cli`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobqueue.errors import ConfigurationError, JobQueueError

if TYPE_CHECKING:
    from jobqueue_operator.up.report import Reporter


def register(app: typer.Typer) -> None:
    """Add the commands to an app."""
    app.command("up")(up)


def up(
    manifest: Annotated[
        Path, typer.Option("-f", "--file", help="Manifest with a JobQueue, and DownstreamCapacity objects if any.")
    ] = Path("jobqueue.yaml"),
    dsn: Annotated[
        str | None,
        typer.Option(help="Database of the queue; JOBQUEUE_DSN says the same. Without any: an embedded PostgreSQL."),
    ] = None,
    dsn_dir: Annotated[
        Path | None,
        typer.Option(help="Directory of files host, port, dbname, user, password, sslmode, sslrootcert."),
    ] = None,
    schema: Annotated[str, typer.Option(help="Schema of the queue.", envvar="JOBQUEUE_SCHEMA")] = "jobqueue",
    for_: Annotated[
        float | None, typer.Option("--for", min=0, metavar="SECONDS", help="Drain and end after this time.")
    ] = None,
    until_empty: Annotated[  # noqa: FBT002 - an option
        bool, typer.Option("--until-empty", help="Drain and end when no job is ready, running or due within a minute.")
    ] = False,
    state_dir: Annotated[
        Path, typer.Option(help="Where logs, and the embedded PostgreSQL's data, are kept between runs.")
    ] = Path(".jobqueue"),
    app_dir: Annotated[
        Path | None, typer.Option(help="Working directory of the workers, from which the app is imported [default: .].")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=VALUE]", help="Variable for the workers, which do not get ours. May be given many times."
        ),
    ] = None,
    tick: Annotated[float, typer.Option(min=0.1, max=60, metavar="SECONDS", help="Time between two looks.")] = 1.0,
    json: Annotated[  # noqa: FBT002 - an option
        bool, typer.Option("--json", help="JSON lines, on a terminal too.")
    ] = False,
) -> None:
    """Run a manifest's job classes on this machine, as the operator runs them in a cluster.

    Workers are processes that are drained, restarted and replaced as pods are. Ctrl-C or SIGTERM drains them; a second
    one gives running jobs back at once. SIGHUP reads the manifest again and replaces every worker, one by one.

    Exit status: 0 when all went well, 1 when jobs wait that nobody can work on or the database cannot be used, 2 when
    the manifest or an option is wrong.
    """
    try:
        # Here, so that other commands start without them.
        from jobqueue_operator.up.finish import Ending  # noqa: PLC0415
        from jobqueue_operator.up.run import Options  # noqa: PLC0415
        from jobqueue_operator.up.run import up as run  # noqa: PLC0415
    except ModuleNotFoundError as error:
        typer.echo(f"jobqueue up needs {error.name}: pip install 'jobqueue-operator[local]'", err=True)
        raise typer.Exit(2) from None
    if for_ is not None and until_empty:
        typer.echo("--for and --until-empty: give one of them", err=True)
        raise typer.Exit(2)
    options = Options(
        manifest=manifest,
        dsn=dsn,
        dsn_dir=dsn_dir,
        schema=schema,
        ending=Ending(after=for_, when_empty=until_empty),
        state=state_dir.absolute(),
        directory=(app_dir or Path()).absolute(),
        pass_on=tuple(env or ()),
        interval=tick,
    )
    reporter = _reporter(json=json)
    try:
        status = asyncio.run(run(options, reporter))
    except ConfigurationError as error:
        status = _fail(error, 2)
    except (JobQueueError, OSError) as error:
        status = _fail(error, 1)
    finally:
        reporter.close()
    raise typer.Exit(status)


def _reporter(*, json: bool) -> Reporter:
    if json or not sys.stdout.isatty():
        from jobqueue_operator.up.lines import Lines  # noqa: PLC0415

        return Lines(sys.stdout)
    from rich.console import Console  # noqa: PLC0415

    from jobqueue_operator.up.table import Table  # noqa: PLC0415

    return Table(Console())


def _fail(error: Exception, status: int) -> int:
    typer.echo(str(error), err=True)
    return status
