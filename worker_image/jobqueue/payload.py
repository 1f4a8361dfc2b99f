"""Turn Python values into the JSON that PostgreSQL stores, refusing what it could not give back.

Everything is checked here, before the database sees it, so that the error names the place inside the value
(`payload.lines[3].price: NaN is not JSON; …`) and never shows the value itself.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from jobqueue.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BYTES = 262_144
MAX_DEPTH = 64
MAX_INTEGER_DIGITS = 1_000
_HUGE = 10**MAX_INTEGER_DIGITS
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))  # json.dumps makes one a call


def encode(value: Any, *, field: str = "payload", max_bytes: int = MAX_BYTES) -> str:
    """Return `value` as JSON text of at most `max_bytes` bytes of UTF-8.

    Accepts None, bool, int, float, str, list, tuple, dicts with str keys, and pydantic models (dumped in JSON mode).
    Raises InvalidInput naming the place, the reason and the remedy.
    """
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        value = dump(mode="json", by_alias=True)
    try:
        text = _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError):
        _find_problem(value, field, 0)  # slow, and only for what json refused: it says where
        raise
    _find_problem(
        value, field, 0
    )  # json also takes what would not come back as it was: keys that are no text, depth, NUL
    size = len(text) if text.isascii() else len(text.encode())
    if size > max_bytes:
        msg = f"{field}: {size} bytes, at most {max_bytes} are allowed; store the data and pass a reference to it"
        raise InvalidInput(msg)
    return text


def decode(text: str) -> Any:
    """Return the value of JSON text that the database wrote.

    By pydantic's reader, which is six times as fast as json's and not as deep; what is too deep for it is json's.
    """
    try:
        return from_json(text)
    except ValueError:
        return json.loads(text)


def check_text(value: str, *, field: str) -> str:
    """Return `value` unless PostgreSQL could not store it (NUL, lone surrogates)."""
    if not isinstance(value, str):
        msg = f"{field}: must be text, not {type(value).__name__}"
        raise InvalidInput(msg)
    if "\x00" in value:
        msg = f"{field}: contains a NUL character, which PostgreSQL cannot store; remove it"
        raise InvalidInput(msg)
    try:
        value.encode()
    except UnicodeEncodeError:
        msg = f"{field}: contains a lone surrogate, which is not valid Unicode; decode the input with errors='replace'"
        raise InvalidInput(msg) from None
    return value


def sanitise(text: str, *, limit: int = 2_000) -> str:
    """Return `text` made storable whatever it holds, at most `limit` characters: recording an error cannot fail."""
    return text[: limit + 1].replace("\x00", "\N{SYMBOL FOR NULL}").encode(errors="replace").decode()[:limit]


def _find_problem(value: Any, at: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        msg = f"{at[:200]}: nested more than {MAX_DEPTH} levels deep; flatten it, or store it and pass a reference"
        raise InvalidInput(msg)
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        check_text(value, field=at)
    elif isinstance(value, int | float):
        _check_number(value, at)
    elif isinstance(value, dict):
        _find_in_object(value, at, depth)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _find_problem(item, f"{at}[{index}]", depth + 1)
    else:
        msg = f"{at}: {type(value).__name__} is not JSON; pass text, numbers, lists and objects, or a pydantic model"
        raise InvalidInput(msg)


def _check_number(value: float, at: str) -> None:
    if isinstance(value, int):
        if abs(value) >= _HUGE:
            msg = f"{at}: an integer of more than {MAX_INTEGER_DIGITS} digits; pass it as text"
            raise InvalidInput(msg)
    elif not math.isfinite(value):
        msg = f"{at}: NaN and Infinity are not JSON; pass null or text"
        raise InvalidInput(msg)


def _find_in_object(value: Mapping[Any, Any], at: str, depth: int) -> None:
    for key, item in value.items():
        if not isinstance(key, str):
            msg = f"{at}: the key {key!r:.50} is no text; JSON objects have text keys only"
            raise InvalidInput(msg)
        check_text(key, field=f"{at} (a key)")
        _find_problem(item, f"{at}.{key}" if key.isidentifier() else f"{at}[{key!r:.50}]", depth + 1)
