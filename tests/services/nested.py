"""Where the values of a document are."""

from __future__ import annotations

from typing import Any


def places(value: Any, where: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to each value inside of `value`: keys and positions."""
    found = [where] if where else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*where, key))
    return found
