"""Ticks from files that `jobqueue up` wrote."""

from __future__ import annotations

import gzip
import math
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

from jobqueue.cli.failure import Refused
from jobqueue.cli.writing import show_time
from jobqueue_operator.planner import record
from jobqueue_operator.planner.replay import gap

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jobqueue_operator.planner.record import Remarks, Tick

HINT = "`jobqueue up` records its decisions in .jobqueue/decisions.jsonl; --dsn explains a live queue"


def ticks(file: Path, remarks: Remarks) -> Iterator[Tick]:
    """Return a record's ticks, those of the file before it (`FILE.1`) first; `-` is standard input.

    Files that end in .gz are decompressed. Raises Refused when there is no file, or it cannot be read.
    """
    try:
        yield from record.read(_lines(file), remarks)
    except record.RecordError as error:
        raise Refused(f"{file}: {error}") from None
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error) or "it ends in the middle"
        raise Refused(f"{file}: cannot be read: {reason}", hint=HINT) from None


def nearest(file: Path, at: datetime | None, remarks: Remarks) -> Tick:
    """Return the decision that held at a moment, or the last of all. Raises Refused when there is none."""
    before = after = None
    moment = at.timestamp() if at is not None else math.inf
    for tick in ticks(file, remarks):
        if tick.now <= moment:
            before, after = tick, None
        elif after is None:
            after = tick
    if before is None and after is None:
        raise empty(file, remarks)
    if before is None or (at is not None and moment - before.now > gap(before)):
        known = [(name, t.now) for name, t in (("the last before it", before), ("the next", after)) if t is not None]
        raise Refused(
            f"--at: {file} holds no decision of {show_time(at)}"
            + "".join(f"; {name} is of {_moment(now)}" for name, now in known),
            hint=f"--at {_moment(math.ceil(known[0][1])).replace(' ', 'T')}, or another record with --from",
        )
    return before


def _moment(now: float) -> str:
    return show_time(datetime.fromtimestamp(now, UTC))


def empty(file: Path, remarks: Remarks) -> Refused:
    """Return the refusal of a record that holds no tick."""
    why = f" ({remarks.texts[0]})" if remarks.texts else ""
    return Refused(f"{file}: holds no decision{why}", hint=HINT)


def _lines(file: Path) -> Iterator[str]:
    if str(file) == "-":
        yield from _bounded(sys.stdin)
        return
    earlier = file.parent / f"{file.name}.1"
    for part in [earlier, file] if earlier.exists() else [file]:
        if part is file and earlier.exists() and not file.exists():
            return  # it was full a moment ago
        with _open(part) as stream:
            yield from _bounded(stream)


def _open(file: Path) -> TextIO:
    if file.name.endswith(".gz"):
        return gzip.open(file, "rt", encoding="utf-8", errors="replace")
    return file.open(encoding="utf-8", errors="replace")


def _bounded(stream: TextIO) -> Iterator[str]:
    """Return lines; one that is too long comes in pieces, none of which can be read as a tick."""
    while text := stream.readline(record.LINE_MOST + 1):
        yield text
