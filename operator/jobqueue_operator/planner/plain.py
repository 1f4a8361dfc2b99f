"""Facts, plans and their parts as plain values of JSON."""

from __future__ import annotations

import math
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

NO_NUMBERS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""Floats that JSON has no word for, as texts."""


def plain(value: Any, *, defaults: bool = False) -> Any:
    """Return a value of dataclasses, enums, mappings and tuples as JSON has it.

    Members of dataclasses that have their default are left out, unless `defaults` are wanted too.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return NO_NUMBERS[str(value)]
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str(value).encode(errors="replace").decode()  # a lone surrogate is no text in UTF-8
    if isinstance(value, tuple | list):
        return [plain(item, defaults=defaults) for item in value]
    if is_dataclass(value):
        members = ((f, getattr(value, f.name)) for f in fields(value))
        return {f.name: plain(m, defaults=defaults) for f, m in members if defaults or not _default(f, m)}
    return {str(key): plain(item, defaults=defaults) for key, item in value.items()}


def _default(of: Field[Any], value: Any) -> bool:
    if of.default_factory is not MISSING:
        return bool(value == of.default_factory())
    return of.default is not MISSING and bool(value == of.default)
