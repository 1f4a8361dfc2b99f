"""What a worker said last: the line of its log that tells why it died."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

TAIL_BYTES = 65_536
"""How much of a log's end is read."""
LENGTH = 500
"""Characters of a line that are kept."""
_GRAVE = frozenset({"error", "critical", "fatal"})
_SAYS = ("event", "error", "reason", "exception")


def last_words(log: Path, *, since: int = 0) -> str:
    """Return the last line of a log, written at or after byte `since`, that says what went wrong; or nothing.

    A plain line that ends the log (a traceback's last, an interpreter's complaint) says more than a structured line
    before it; a structured line of a grave level says more than one that is not.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(log.stat().st_size - TAIL_BYTES, since))
            lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    except OSError:
        return ""
    lines = [line for line in lines if line]
    if not lines:
        return ""
    entries = [_entry(line) for line in lines]
    if entries[-1] is None:
        return lines[-1][:LENGTH]
    grave = [e for e in entries if e is not None and str(e.get("level", "")).lower() in _GRAVE]
    return _sentence((grave or [entries[-1]])[-1])


def _entry(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _sentence(entry: dict[str, Any]) -> str:
    return ": ".join(str(entry[key]) for key in _SAYS if entry.get(key))[:LENGTH]
