"""worker, drain and relay."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobqueue.cli.place import AsJson  # noqa: TC001 - typer evaluates the annotations
from jobqueue.cli.writing import write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic.fields import FieldInfo

_LogJson = Annotated[
    bool | None, typer.Option("--json", help="The same as --log-format json; errors too.", show_default=False)
]
_DRAIN_SOCKET = "/tmp/jobqueue-drain.sock"  # noqa: S108 - the worker makes it with mode 0600
_WORKER_HELP = """Run a worker: claim jobs of one class, run their handlers, acknowledge.

SIGTERM drains it: no new claims, running jobs finish, the rest is given back. A second SIGTERM gives back at once.

Example: jobqueue worker --app shop.jobs:app --class email --concurrency 16
"""


_RELAY_HELP = """Publish the ids of ready jobs to RabbitMQ, for workers that run with --wakeup rabbitmq.

One a database is enough. It is no part of any enqueue: while it or the broker is away, workers poll.

Example: jobqueue relay --classes email,report --broker-url /etc/broker/url
"""


def register(app: typer.Typer, *, expand: str) -> None:
    """Add the commands. A worker's and a relay's options come from their settings: imported for the one to `expand`."""
    app.command("worker", help=_WORKER_HELP)(_worker_command() if expand == "worker" else _unexpanded)
    app.command("drain")(drain)
    app.command("relay", help=_RELAY_HELP)(_relay_command() if expand == "relay" else _unexpanded)


def drain(
    socket: Annotated[Path, typer.Option(envvar="JOBQUEUE_DRAIN_SOCKET", help="The worker's drain socket.")] = Path(
        _DRAIN_SOCKET
    ),
    timeout: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="Wait so long at most. Default: until it has drained."),
    ] = None,
    as_json: AsJson = False,  # noqa: FBT002 - an option
) -> None:
    """Drain the worker on this machine and wait until it has; what a preStop hook runs.

    Asking twice changes nothing. Exit status 0: drained; 1: no worker there, or time was up.

    Example: jobqueue drain --timeout 60
    """
    from jobqueue.worker.drain import request  # noqa: PLC0415 - the extra may be missing

    request(socket, timeout)
    if as_json:
        write_json({"drained": True})


def _unexpanded() -> None:
    """Stand for a command in the list of them."""


def _worker_command() -> Callable[..., None]:
    from jobqueue.worker.settings import WorkerSettings  # noqa: PLC0415 - heavy

    def run(**given: Any) -> None:
        from jobqueue.worker import settings, supervisor  # noqa: PLC0415 - heavy

        raise typer.Exit(supervisor.main(settings.load(**_formatted(given))))

    return _with_options(run, WorkerSettings.model_fields)


def _relay_command() -> Callable[..., None]:
    from jobqueue.wakeup import relaying  # noqa: PLC0415 - heavy

    def run(**given: Any) -> None:
        relaying.main(relaying.load(**_formatted(given)))

    return _with_options(run, relaying.RelaySettings.model_fields)


def _formatted(given: dict[str, Any]) -> dict[str, Any]:
    as_json = given.pop("as_json")
    return given | {"log_format": "json"} if as_json else given


def _with_options(run: Callable[..., None], fields: Mapping[str, FieldInfo]) -> Callable[..., None]:
    options = {name: _option(name, field) for name, field in fields.items()} | {"as_json": _LogJson}
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
            for name, option in options.items()
        ]
    )
    run.__annotations__ = options
    return run


def _option(name: str, field: FieldInfo) -> Any:
    """Return a settings field as an option without a default of its own: what is not given is left to the settings."""
    short = {"class_name": "class", "schema_name": "schema"}.get(name, name)
    flag = "--" + short.replace("_", "-")
    variable = f"JOBQUEUE_{short.upper()}"
    text = field.description or ""
    if field.default not in {None, ""} and not field.is_required() and "Default:" not in text:
        text += f" Default: {_plain(field.default)}."
    kind: Any = bool | None if field.annotation is bool else str | None
    names = (flag, f"--no-{flag[2:]}") if field.annotation is bool else (flag,)
    metavar = None if field.annotation is bool else short.rpartition("_")[2].upper()
    return Annotated[
        kind, typer.Option("/".join(names), metavar=metavar, help=f"{text} [{variable}]", show_default=False)
    ]


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
