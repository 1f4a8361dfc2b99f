"""A live table on a terminal, with what happens scrolling by above it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rich.live import Live
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from jobqueue_operator.up.report import Level, Row

_STYLES: dict[Level, str] = {"info": "dim", "warning": "yellow", "error": "bold red"}
_COLUMNS = ("class", "oldest/target", "ready", "later", "running", "done", "dead", "up")


class Table:
    """Draws on a rich console until closed. A terminal that went away is no reason to stop working."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def say(self, level: Level, message: str, **details: object) -> None:
        """Print a line above the table. Details are for programs."""
        del details
        with contextlib.suppress(OSError):
            self._console.print(Text(message, style=_STYLES[level]), soft_wrap=True)

    def tick(self, rows: Sequence[Row]) -> None:
        """Draw the state."""
        table = render(rows)
        with contextlib.suppress(OSError):
            if self._live is None:
                self._live = Live(table, console=self._console, auto_refresh=False)
                self._live.start()
            self._live.update(table, refresh=True)

    def close(self) -> None:
        """Leave the last table on the screen."""
        live, self._live = self._live, None
        if live is not None:
            with contextlib.suppress(OSError):
                live.stop()


def render(rows: Sequence[Row]) -> RichTable:
    """Return the table of one tick."""
    table = RichTable(box=None, expand=True, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column == "class" else "right", no_wrap=True)
    table.add_column("what and why", ratio=1, min_width=12, overflow="fold")
    for row in rows:
        age = f"{_seconds(row.oldest_age)}/{_seconds(row.target_age)}"
        table.add_row(
            escape(row.class_),
            f"[bold red]{age}[/]" if row.late else age,
            *(_count(n) for n in (row.ready, row.scheduled, row.in_flight, row.done, row.dead)),
            f"{row.workers_ready}/{row.workers_wanted}",
            escape(row.why),
        )
    return table


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "?"
    if value < 60:  # noqa: PLR2004 - a minute
        return f"{value:.1f}s"
    minutes, seconds = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{seconds:02}s"
