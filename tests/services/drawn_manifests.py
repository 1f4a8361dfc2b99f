"""Manifests for hypothesis to draw: what fits each field by itself, now and then spoilt at one place."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from jobqueue_operator.resources.crds import downstream_capacities, job_queues
from services.nested import places

if TYPE_CHECKING:
    from collections.abc import Callable

Schema = dict[str, Any]

DURATIONS = [
    "100ms",
    "500ms",
    "2s",
    "5s",
    "6s",
    "15s",
    "16s",
    "30s",
    "1m",
    "2m",
    "587s",
    "10m",
    "11m",
    "1h30m",
    "1d12h",
]
TEXTS = {
    "cron": ["0 8 * * 1-5", "*/5 * * * *", "0 0 8 * 7"],
    "timeZone": ["UTC", "Europe/Oslo"],
    "app": ["shop.jobs:app"],
    "image": ["registry.example/shop-worker:1"],
    "schema": ["jobqueue", "_q"],
    "done": ["1m", "7d", "3650d"],
    "dead": ["30d", "12h"],
}
ODD: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        1.5,
        2.0,
        0.5,
        10**6,
        10**6 + 1,
        10**17,
        "",
        " ",
        "x",
        "A",
        "30s",
        "-1s",
        "1e9d",
        "99ms",
        "8d",
    ),
    *(
        "3650d",
        "3651d",
        "99999d",
        "1m1h",
        "a" * 40,
        "a" * 64,
        "a" * 501,
        "0 8 * *",
        "61 * * * *",
        "Mars",
        "null",
        "jobs:app",
    ),
    *([], {}, [[]], [None], {"name": None}, {"name": "a"}, [{"name": "a", "timeout": "1s"}], {"min": "1"}),
]


def part(schema: Schema, name: str = "") -> st.SearchStrategy[Any]:
    """Draw what fits each field by itself; whether fields fit each other is what is looked for."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    draws: dict[str, Callable[[Schema, str], st.SearchStrategy[Any]]] = {
        "boolean": lambda *_: st.booleans(),
        "integer": _whole,
        "number": lambda *_: st.sampled_from([1, 1.0] if schema.get("exclusiveMinimum") else [1, 2.5, 100]),
        "string": _text,
        "array": _list,
        "object": _mapping,
    }
    return draws[schema["type"]](schema, name)


def _whole(schema: Schema, _name: str) -> st.SearchStrategy[int]:
    low, high = schema["minimum"], schema["maximum"]
    return st.one_of(st.integers(low, low + 12), st.sampled_from([low, high]))


def _text(schema: Schema, name: str) -> st.SearchStrategy[str]:
    return st.sampled_from(TEXTS.get(name) or (DURATIONS if "ms" in schema["pattern"] else ["a", "b", "email-2"]))


def _list(schema: Schema, _name: str) -> st.SearchStrategy[list[Any]]:
    return st.lists(part(schema["items"]), min_size=schema.get("minItems", 0), max_size=2)


def _mapping(schema: Schema, _name: str) -> st.SearchStrategy[dict[str, Any]]:
    fields = {key: part(each, key) for key, each in schema.get("properties", {}).items()}
    return _some(fields, tuple(schema.get("required", ())))


@st.composite
def _some(draw: st.DrawFn, fields: dict[str, st.SearchStrategy[Any]], required: tuple[str, ...]) -> dict[str, Any]:
    # Few at a time, or nearly every manifest would be wrong in several places, and one verdict would hide another.
    optional = [key for key in fields if key not in required]
    some = draw(st.lists(st.sampled_from(optional), max_size=3, unique=True)) if optional else []
    return {key: draw(fields[key]) for key in (*required, *some)}


SPECS = {
    definition["spec"]["names"]["kind"]: part(
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    )
    for definition in (job_queues(), downstream_capacities())
}


@st.composite
def manifests(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(list(SPECS)))
    spec = draw(SPECS[kind])
    for _ in range(draw(st.sampled_from([0, 0, 1]))):
        choices = places(spec)
        if not choices:
            break
        *way, last = draw(st.sampled_from(choices))
        holder = spec
        for key in way:
            holder = holder[key]
        match draw(st.integers(0, 5)):
            case 0:
                del holder[last]
            case 1 if isinstance(holder, dict):
                holder["extra"] = 1
            case 2 if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[last]))
            case _:
                holder[last] = draw(st.sampled_from(ODD))
    return {"apiVersion": "jobqueue.dev/v1alpha1", "kind": kind, "metadata": {"name": "drawn"}, "spec": spec}
