"""A live table on a terminal, with what happens scrolling by above it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from jobqueue_operator.queues.saying import Level
    from jobqueue_operator.up.report import CapacityRow, Row

_STYLES: dict[Level, str] = {"info": "dim", "warning": "yellow", "error": "bold red"}
_COLUMNS = ("class", "oldest/target", "ready", "later", "running", "done", "dead", "workers")


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

    def tick(self, rows: Sequence[Row], capacities: Sequence[CapacityRow] = ()) -> None:
        """Draw the state."""
        table = render(rows, capacities)
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


def render(rows: Sequence[Row], capacities: Sequence[CapacityRow] = ()) -> Group:
    """Return one tick: the classes' numbers, what is done about each and why, and each downstream's units.

    Workers are shown as ready/wanted, and how many are on their way out. Readable at 100 columns.
    """
    numbers = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in _COLUMNS:
        numbers.add_column(column, justify="left" if column == "class" else "right", no_wrap=True)
    whys = RichTable.grid(expand=True, padding=(0, 2, 0, 0))
    whys.add_column(no_wrap=True)
    whys.add_column(ratio=1, overflow="fold")
    for row in rows:
        age = f"{_seconds(row.oldest_age)}/{_seconds(row.target_age)}"
        numbers.add_row(
            escape(row.class_),
            f"[bold red]{age}[/]" if row.late else age,
            *(_count(n) for n in (row.ready, row.scheduled, row.in_flight, row.done, row.dead)),
            _workers(row),
        )
        whys.add_row(
            escape(row.class_), Text("; ".join([row.why, *(_brief(remark, row.why) for remark in row.remarks)]))
        )
    for capacity in capacities:
        whys.add_row(escape(capacity.downstream), _units(capacity))
    return Group(numbers, Text(), whys)


def _brief(remark: str, why: str) -> str:
    """Leave a condition's numbers out where they were said already."""
    return remark.partition(":")[0] if why in remark else remark


def _workers(row: Row) -> str:
    leaving = row.workers_retired + row.workers_draining
    return f"{row.workers_ready}/{row.workers_wanted}" + (f" -{leaving}" if leaving else "")


def _units(row: CapacityRow) -> Text:
    line = Text(f"{_count(row.in_use)}/{row.limit:,} units")
    for claim in row.claims:
        line.append(f" · {claim.class_} {claim.allocated:,}")
        if claim.held_back:
            by = ", ".join(claim.held_back_by) or "the limit"
            line.append(f" of {claim.asked:,}, held back by {by}", style="yellow")
    return line


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
