"""Every command, brought together."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import typer

from jobqueue.cli import looking, producing, repairing, setting_up, upkeep, working

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OVERVIEW = """A job queue that lives in your PostgreSQL.

Where it is: --dsn, JOBQUEUE_DSN, a folder of files (--dsn-dir, JOBQUEUE_DSN_DIR), or libpq's own variables.
"""


def build(arguments: Sequence[str]) -> Callable[..., Any]:
    """Return the command. `arguments` decide only what is worth importing for it."""
    app = typer.Typer(
        name="jobqueue",
        help=OVERVIEW,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for module in (setting_up, producing):
        module.register(app)
    working.register(app, expand=arguments[0] if arguments else "")
    for module in (looking, repairing, upkeep):
        module.register(app)
    for point in entry_points(group="jobqueue.cli"):
        point.load()(app)
    return typer.main.get_command(app)
