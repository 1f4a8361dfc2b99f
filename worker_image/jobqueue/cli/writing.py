"""Answers on standard output: JSON for machines, aligned columns for people."""

from __future__ import annotations

import json
import math
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


def write_json(value: Any) -> None:
    """Write one value as one line. Times are ISO 8601 in UTC, durations seconds."""
    sys.stdout.write(json.dumps(value, default=_plain, ensure_ascii=False) + "\n")


def write(line: str) -> None:
    """Write one line."""
    sys.stdout.write(line + "\n")


def write_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write rows under `head`."""
    for line in table([head, *rows]):
        write(line)


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return rows as lines, columns as wide as their widest cell, nothing cut off."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def show_time(value: datetime | None) -> str:
    """Return a moment to the second, in UTC; `-` when there is none."""
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ") if value is not None else "-"


def show_seconds(value: float) -> str:
    """Return a span as people say it: 0.4s, 12s, 3m05s, 2h10m, 4d02h. What is no span, in a damaged record, is `?`."""
    if not math.isfinite(value):
        return "?"
    if value < 10:  # noqa: PLR2004 - below this, tenths matter
        return f"{value:.1f}s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02}h"
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{seconds:02}s" if minutes else f"{seconds}s"


def printable(text: Any) -> str:
    """Return a cell's text on one line, without control characters: it may have been written by anybody."""
    if text is None:
        return "-"
    if isinstance(text, dict | list):
        text = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else " " for c in str(text))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    raise TypeError(type(value).__name__)
