"""The end of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

TAIL_BYTES = 65_536
"""How much of a log's end is read."""


def tail(log: Path, *, since: int = 0) -> str:
    """Return the end of a log, as far as it was written at or after byte `since`; nothing when it cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(log.stat().st_size - TAIL_BYTES, since))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
