"""What a worker said last: the line of its output that tells why it died. Pure."""

from __future__ import annotations

import json
from typing import Any

LENGTH = 500
"""Characters that are kept."""
_GRAVE = frozenset({"error", "critical", "fatal"})
_SAYS = ("event", "error", "reason", "exception")
"""Fields of a structured line of the worker's that say what happened; the last is a traceback."""


def last_words(text: str) -> str:
    """Return the last line that says what went wrong, a structured one as a sentence; or nothing.

    A plain line that ends the text (a traceback's last, an interpreter's complaint) says more than a structured line
    before it; a structured line of a grave level says more than one that is not.
    """
    lines = _lines(text)
    if not lines:
        return ""
    entries = [_entry(line) for line in lines]
    if entries[-1] is None:
        return lines[-1][:LENGTH]
    grave = [e for e in entries if e is not None and str(e.get("level", "")).lower() in _GRAVE]
    return _sentence((grave or [entries[-1]])[-1]) or lines[-1][:LENGTH]


def _entry(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _sentence(entry: dict[str, Any]) -> str:
    said = {key: _lines(str(entry[key])) for key in _SAYS if entry.get(key)}
    return ": ".join(" ".join(each[-1:] if key == "exception" else each) for key, each in said.items())[:LENGTH]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
