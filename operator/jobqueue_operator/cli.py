"""The commands that the operator adds to `jobqueue`, by the entry point group `jobqueue.cli`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobqueue.cli.failure import Refused
from jobqueue.cli.place import AsJson, Dsn, DsnDir, Schema  # noqa: TC001 - typer evaluates the annotations

if TYPE_CHECKING:
    from jobqueue_operator.up.report import Reporter


def register(app: typer.Typer) -> None:
    """Add the commands to an app."""
    app.command("up")(up)
    app.command("explain")(explain)


def up(
    manifest: Annotated[
        Path, typer.Option("--file", "-f", help="Manifest with a JobQueue, and DownstreamCapacity objects if any.")
    ] = Path("jobqueue.yaml"),
    dsn: Dsn = None,
    dsn_dir: DsnDir = None,
    schema: Schema = "jobqueue",
    listen_dsn: Annotated[
        str | None,
        typer.Option(
            metavar="DSN",
            envvar="JOBQUEUE_LISTEN_DSN",
            show_envvar=False,
            help="Direct address for LISTEN when the DSN is a pooler's; JOBQUEUE_LISTEN_DSN says the same.",
        ),
    ] = None,
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
        Path, typer.Option(help="Working directory of the workers, from which the app is imported.")
    ] = Path(),
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=VALUE]", help="Variable for the workers, which do not get ours. May be given many times."
        ),
    ] = None,
    tick: Annotated[float, typer.Option(min=0.1, max=60, metavar="SECONDS", help="Time between two looks.")] = 1.0,
    record: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Append each decision, as a line of JSON; decisions.jsonl in --state-dir."),
    ] = None,
    as_json: AsJson = False,  # noqa: FBT002 - an option
) -> None:
    """Run a manifest's job classes on this machine, as in a cluster.

    Without a DSN an embedded PostgreSQL is used, and kept under --state-dir.
    Workers are processes; they are drained, restarted and replaced as pods are.

    Ctrl-C or SIGTERM drains them; a second one gives running jobs back at once.
    SIGHUP reads the manifest again and replaces every worker, one by one.

    Exit status 0: all went well; 1: jobs wait that nobody can work on, or the
    database cannot be used; 2: the manifest or an option is wrong.

    Example: jobqueue up -f jobqueue.yaml --until-empty
    """
    try:
        # Here, so that other commands start without them.
        from jobqueue_operator.up.finish import Ending  # noqa: PLC0415
        from jobqueue_operator.up.run import Options  # noqa: PLC0415
        from jobqueue_operator.up.run import up as run  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise Refused(f"jobqueue up needs {error.name}", hint="pip install 'jobqueue-operator[local]'") from None
    if for_ is not None and until_empty:
        raise Refused("--for and --until-empty: give one of them")
    options = Options(
        manifest=manifest,
        dsn=dsn,
        dsn_dir=dsn_dir,
        listen_dsn=listen_dsn,
        schema=schema,
        ending=Ending(after=for_, when_empty=until_empty),
        state=state_dir.absolute(),
        directory=app_dir.absolute(),
        pass_on=tuple(env or ()),
        interval=tick,
        record=record.absolute() if record is not None else None,
    )
    reporter = _reporter(as_json=as_json)
    try:
        status = asyncio.run(run(options, reporter))
    finally:
        reporter.close()
    raise typer.Exit(status)


def explain(
    class_: Annotated[str | None, typer.Argument(metavar="CLASS", help="Only this class.", show_default=False)] = None,
    manifest: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="Live: the manifest; jobqueue.yaml unless said."),
    ] = None,
    dsn: Dsn = None,
    dsn_dir: DsnDir = None,
    schema: Schema = "jobqueue",
    tick: Annotated[
        float, typer.Option(min=0.1, max=10, metavar="SECONDS", help="Live: time between two looks, as up's.")
    ] = 1.0,
    from_: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="A record; .jobqueue/decisions.jsonl when no database is named."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The last recorded decision at or before it: 2030-01-31T08:00Z, -1h."),
    ] = None,
    replay: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A record to carry another spec through; needs --spec.")
    ] = None,
    spec: Annotated[Path | None, typer.Option(metavar="FILE", help="The manifest to try on it.")] = None,
    as_json: AsJson = False,  # noqa: FBT002 - an option
) -> None:
    """Say why a class has as many workers as it has, and what would change that.

    From a live queue and its manifest, or from what `jobqueue up` recorded.
    With --replay and --spec: what another manifest would have done with
    recorded facts, on a modelled queue.

    Examples: jobqueue explain email --dsn postgresql://db/shop
              jobqueue explain --from .jobqueue/decisions.jsonl --at -1h
              jobqueue explain --replay .jobqueue/decisions.jsonl --spec new.yaml
    """
    from jobqueue.cli.moments import moment  # noqa: PLC0415 - as above
    from jobqueue_operator.explain import command  # noqa: PLC0415

    if (replay is None) != (spec is None):
        raise Refused("--replay and --spec go together")
    if from_ is not None and (dsn or dsn_dir):
        raise Refused("--from and --dsn or --dsn-dir: give one of them")
    if replay is not None and spec is not None:
        given = {"CLASS": class_, "--from": from_, "--at": at, "--file": manifest, "--dsn": dsn, "--dsn-dir": dsn_dir}
        if unused := [name for name, value in given.items() if value is not None]:
            raise Refused(f"--replay does not use {', '.join(unused)}")
        command.replay(replay, spec, as_json=as_json)
        return
    place = command.Place(
        manifest=manifest,
        dsn=dsn,
        dsn_dir=dsn_dir,
        schema=schema,
        file=from_,
        at=moment(at, option="--at") if at is not None else None,
        tick=tick,
    )
    command.explain(place, class_, as_json=as_json)


def _reporter(*, as_json: bool) -> Reporter:
    if as_json or not sys.stdout.isatty():
        from jobqueue_operator.up.lines import Lines  # noqa: PLC0415

        return Lines(sys.stdout)
    from rich.console import Console  # noqa: PLC0415

    from jobqueue_operator.up.table import Table  # noqa: PLC0415

    return Table(Console())
