"""worker, drain and relay."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic.fields import FieldInfo

_DRAIN_SOCKET = "/tmp/jobqueue-drain.sock"  # noqa: S108 - the worker makes it with mode 0600
_WORKER_HELP = """Run a worker: claim jobs of one class, run their handlers, acknowledge.

SIGTERM drains it: no new claims, running jobs finish, the rest is given back. A second SIGTERM gives back at once.

Example: jobqueue worker --app shop.jobs:app --class email --concurrency 16
"""


def register(app: typer.Typer, *, with_options: bool) -> None:
    """Add the commands. The worker's options come from its settings, which only `jobqueue worker` needs to import."""
    app.command("worker", help=_WORKER_HELP)(_worker_command() if with_options else _unexpanded)
    app.command("drain")(drain)


def drain(
    socket: Annotated[Path, typer.Option(envvar="JOBQUEUE_DRAIN_SOCKET", help="The worker's drain socket.")] = Path(
        _DRAIN_SOCKET
    ),
    timeout: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="Wait so long at most. Default: until it has drained."),
    ] = None,
) -> None:
    """Drain the worker on this machine and wait until it has; what a preStop hook runs.

    Asking twice changes nothing. Exit status 0: drained; 1: no worker there, or time was up.
    """
    from jobqueue.worker.drain import request  # noqa: PLC0415 - the extra may be missing

    raise typer.Exit(request(socket, timeout))


def _unexpanded() -> None:
    """Stand for the worker in the list of commands."""


def _worker_command() -> Callable[..., None]:
    from jobqueue.worker.settings import WorkerSettings  # noqa: PLC0415 - heavy

    fields = WorkerSettings.model_fields

    def run(**given: Any) -> None:
        from jobqueue.worker import settings, supervisor  # noqa: PLC0415 - heavy

        raise typer.Exit(supervisor.main(settings.load(**given)))

    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(name, field))
            for name, field in fields.items()
        ]
    )
    run.__annotations__ = {name: _option(name, field) for name, field in fields.items()}
    return run


def _option(name: str, field: FieldInfo) -> Any:
    """Return a settings field as an option without a default of its own: what is not given is left to the settings."""
    short = {"class_name": "class", "schema_name": "schema"}.get(name, name)
    flag = "--" + short.replace("_", "-")
    variable = f"JOBQUEUE_{short.upper()}"
    text = field.description or ""
    if field.default is not None and not field.is_required() and "Default:" not in text:
        text += f" Default: {_plain(field.default)}."
    kind: Any = bool | None if field.annotation is bool else str | None
    names = (flag, f"--no-{flag[2:]}") if field.annotation is bool else (flag,)
    metavar = None if field.annotation is bool else short.rpartition("_")[2].upper()
    return Annotated[
        kind, typer.Option("/".join(names), metavar=metavar, help=f"{text} [{variable}]", show_default=False)
    ]


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
