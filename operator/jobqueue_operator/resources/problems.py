"""What is wrong with a manifest, said so that its author can mend it: the field, the reason, the remedy."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import pydantic

Location = Sequence[str | int]
VALUE_LENGTH = 60
"""Characters of a wrong value that a message repeats."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong. `path` is the field (`spec.classes[0].timeout`), empty for the whole object."""

    path: str
    message: str

    def __str__(self) -> str:
        """Read as one line."""
        return f"{self.path}: {self.message}" if self.path else self.message


def path(location: Location) -> str:
    """Write ("spec", "classes", 0, "name") as spec.classes[0].name."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text[:300]


def from_validation(error: pydantic.ValidationError, model: type[pydantic.BaseModel]) -> list[Problem]:
    """Turn what a model refused into problems, in the order of the fields."""
    details = error.errors(include_url=False)
    locations = [tuple(d["loc"]) for d in details]
    found = []
    for detail, location in zip(details, locations, strict=True):
        # A list whose items are refused counts as too short «after validation»: the items say it better.
        inner = any(len(other) > len(location) and other[: len(location)] == location for other in locations)
        if detail["type"] == "too_short" and inner:
            continue
        found.append(Problem(path(location), _message(detail, location, model)))
    return found


@dataclass(frozen=True, slots=True)
class _Refusal:
    """What a model said of one field."""

    value: Any
    context: Mapping[str, Any]
    location: Location
    model: type[pydantic.BaseModel]

    @property
    def shown(self) -> str:
        return _show(self.value)

    @property
    def example(self) -> str:
        field = _field(self.model, self.location)
        return f"; write e.g. {field.examples[0]}" if field is not None and field.examples else ""

    def is_not(self, what: str) -> str:
        return f"{self.shown or 'a list or mapping'} is not {what}"


def _message(detail: Any, location: Location, model: type[pydantic.BaseModel]) -> str:
    refusal = _Refusal(detail.get("input"), detail.get("ctx", {}), location, model)
    say = _SENTENCES.get(detail["type"])
    if say is not None:
        return say(refusal)
    return f"{refusal.shown}: {detail['msg']}" if refusal.shown else str(detail["msg"])


def _own_words(r: _Refusal) -> str:
    text = str(r.context["error"])
    return f"{r.shown} {text}" if r.shown and text.startswith(("is ", "has ")) else text


def _not_a_mapping(r: _Refusal) -> str:
    here = _model_at(r.model, r.location)
    known = f" ({', '.join(_fields(here))})" if here is not None else ""
    return f"{r.shown or 'a list'} is not a mapping; write the fields below it{known}"


def _unknown_field(r: _Refusal) -> str:
    parent = _model_at(r.model, r.location[:-1])
    names = list(_fields(parent)) if parent is not None else []
    near = difflib.get_close_matches(str(r.location[-1]), names, n=1)
    if near:
        return f"is not a field; did you mean {near[0]}?"
    return f"is not a field; the fields here are {', '.join(names)}"


def _not_a_choice(r: _Refusal) -> str:
    choices = r.context["expected"].replace("'", "").replace(" or ", ", ")
    return f"{r.shown or 'a list or mapping'} is not known here; write {choices}"


def _too_short(r: _Refusal) -> str:
    return f"has {r.context.get('actual_length', len(r.value))}; the least is {r.context['min_length']}"


def _whole_number(r: _Refusal) -> str:
    return r.is_not("a whole number; write e.g. 16, without quotes")


_SENTENCES: dict[str, Callable[[_Refusal], str]] = {
    "missing": lambda r: f"is missing{r.example}",
    "extra_forbidden": _unknown_field,
    "value_error": _own_words,
    "int_type": _whole_number,
    "int_from_float": _whole_number,
    "int_parsing_size": _whole_number,
    "float_type": lambda r: r.is_not("a number; write e.g. 2, without quotes"),
    "finite_number": lambda r: r.is_not("a finite number; write e.g. 2"),
    "bool_type": lambda r: r.is_not("true or false; write one of them, without quotes"),
    "string_type": lambda r: r.is_not(f"text{r.example or '; put it in quotes'}"),
    "model_type": _not_a_mapping,
    "dict_type": _not_a_mapping,
    "tuple_type": lambda r: f"{r.shown or 'a mapping'} is not a list; start each entry with '- '",
    "literal_error": _not_a_choice,
    "string_pattern_mismatch": lambda r: (
        f"{r.shown} has the wrong form{r.example}; it must match {r.context['pattern']}"
    ),
    "greater_than_equal": lambda r: f"{r.shown} is too small; the least is {r.context['ge']}",
    "less_than_equal": lambda r: f"{r.shown} is too large; the most is {r.context['le']}",
    "too_short": _too_short,
    "string_too_short": _too_short,
    "too_long": lambda r: f"is too long; the most is {r.context['max_length']}",
    "string_too_long": lambda r: f"is too long; the most is {r.context['max_length']}",
}
"""What each kind of refusal of pydantic's is in words; a kind that is not here keeps pydantic's."""


def _show(value: Any) -> str:
    """Repeat a plain value, shortened; nothing for lists and mappings."""
    if isinstance(value, dict | list | tuple):
        return ""
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= VALUE_LENGTH else f"{text[: VALUE_LENGTH - 1]}…"


def _fields(model: type[pydantic.BaseModel]) -> dict[str, Any]:
    return {info.alias or name: info for name, info in model.model_fields.items()}


def _models(annotation: Any) -> Iterable[type[pydantic.BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _model_at(model: type[pydantic.BaseModel], location: Location) -> type[pydantic.BaseModel] | None:
    current: type[pydantic.BaseModel] | None = model
    for part in location:
        if isinstance(part, int):
            continue
        info = _fields(current).get(part) if current is not None else None
        current = next(iter(_models(info.annotation)), None) if info is not None else None
    return current


def _field(model: type[pydantic.BaseModel], location: Location) -> Any:
    if not location or isinstance(location[-1], int):
        return None
    parent = _model_at(model, location[:-1])
    return _fields(parent).get(location[-1]) if parent is not None else None
