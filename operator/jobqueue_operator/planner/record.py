"""Ticks as lines of JSON, and back: what was asked for, seen and decided, so that it can be explained and replayed.

A line holds `version`, `at` (UTC, for people), `now` (the same, exact), `tick`, `line` (a counter), `wanted` (a digest)
with `specs` behind it where they are not those of the line before, `facts`, `plan`, and `previous` where that is not
the plan of the line before. The first line of a file holds everything, so a file can be read by itself.

Members that have their default are left out; a default is therefore part of the format. Floats that JSON has no word
for are the texts "NaN", "Infinity" and "-Infinity". Pod templates are never written: no decision depends on them, and
they may hold secrets.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import pydantic

from jobqueue_operator.planner.facts import Facts  # noqa: TC001 - read by the annotations of a line
from jobqueue_operator.planner.plain import NO_NUMBERS, plain
from jobqueue_operator.planner.plan import Plan  # noqa: TC001 - as above
from jobqueue_operator.planner.wanted import CapacitySpec, PoolSpec, Wanted
from jobqueue_operator.resources import ClassSpec, DownstreamSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

T = TypeVar("T")
M = TypeVar("M", bound=pydantic.BaseModel)

VERSION = 1
LINE_MOST = 8 * 1024 * 1024
"""Characters in a line: some 20,000 workers."""
MOMENT_MOST = 250_000_000_000.0
"""Seconds since the epoch that still have a date."""
SPECS_EVERY = 1_000
"""Lines after which the specs are written again, so that one damaged line does not cost the rest of a file."""
REMARKS_MOST = 20


class RecordError(ValueError):
    """A record is of a version that this release does not read, or a tick is too large for a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """One call of the planner: `plan(wanted, facts, previous, now=now, tick=tick)` returned `plan`."""

    now: float
    """Seconds since the epoch."""
    tick: float
    wanted: Wanted
    facts: Facts
    plan: Plan
    previous: Plan | None = None
    linked: bool = True
    """False where `previous` was in a line that could not be read; it is None then."""


@dataclass(slots=True)
class Remarks:
    """What was wrong with a record while it was read. Grows as the reading goes on."""

    lines: int = 0
    skipped: int = 0
    texts: list[str] = field(default_factory=list)
    """The first few, each naming its line."""

    def skip(self, text: str) -> None:
        """Count a line that could not be read."""
        self.skipped += 1
        self.say(text)

    def say(self, text: str) -> None:
        """Keep a remark, if it is not one too many."""
        if len(self.texts) < REMARKS_MOST and text not in self.texts:
            self.texts.append(text)


def line(tick: Tick, before: Tick | None = None, *, number: int = 0) -> str:
    """Return a tick as one line without its end; `before` is the tick of the line before it in the same file, if any.

    Raises RecordError when it would have more than `LINE_MOST` characters.
    """
    return _text(tick, before, number, _Specs(tick.wanted))


class _Specs:
    """What was asked for, as it is written: made once, for as long as the same is asked for."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.written = _wanted(wanted)
        self.digest = digest(self.written)


def _text(tick: Tick, before: Tick | None, number: int, specs: _Specs) -> str:
    found: dict[str, Any] = {
        "version": VERSION,
        "at": datetime.fromtimestamp(tick.now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "now": plain(tick.now),
        "tick": plain(tick.tick),
        "line": number,
        "wanted": specs.digest,
    }
    if before is None or before.wanted != tick.wanted:
        found["specs"] = specs.written
    found["facts"] = plain(tick.facts)
    found["plan"] = plain(tick.plan)
    if before is None or before.plan != tick.previous:
        found["previous"] = plain(tick.previous)
    text = json.dumps(found, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    if len(text) > LINE_MOST:
        raise RecordError(f"a tick of {len(text)} characters is not recorded; a line has {LINE_MOST} at most")
    return text


class Recorder:
    """Writes ticks one after another, and remembers what the last line said. `fresh` begins another file."""

    def __init__(self) -> None:
        self._number = 0
        self._before: Tick | None = None
        self._specs: _Specs | None = None

    def fresh(self) -> None:
        """Make the next line one that a file can begin with."""
        self._before = None

    def line(self, tick: Tick) -> str:
        """Return the next line, without its end. Raises RecordError."""
        before = None if self._number % SPECS_EVERY == 0 else self._before
        self._before = None  # what is not written is nothing to lean on
        if self._specs is None or self._specs.wanted != tick.wanted:
            self._specs = _Specs(tick.wanted)
        text = _text(tick, before, self._number, self._specs)
        self._number += 1
        self._before = tick
        return text


def read(lines: Iterable[str], remarks: Remarks | None = None) -> Iterator[Tick]:
    """Return the ticks of a record's lines, oldest first as they were written; nothing is read ahead.

    A line that cannot be read is left out, counted in `remarks` and named there. Members that this release does not
    know are ignored. Raises RecordError at a line of another version.
    """
    said = remarks if remarks is not None else Remarks()
    known: dict[str, Wanted] = {}
    before: tuple[int, Plan] | None = None
    for text in lines:
        said.lines += 1
        if not text.strip():
            continue
        where = f"line {said.lines}"
        try:
            found = _line(text, where)
            wanted = _specs(found, known)
        except (ValueError, RecursionError) as error:
            if isinstance(error, RecordError):
                raise
            said.skip(f"{where} was left out: {_reason(error)}")
            before = None
            continue
        previous, linked = _previous(found, before)
        before = (found.line, found.plan)
        yield Tick(
            now=found.now,
            tick=found.tick,
            wanted=wanted,
            facts=found.facts,
            plan=found.plan,
            previous=previous,
            linked=linked,
        )


def digest(value: Any) -> str:
    """Return a short name for a value of JSON: equal values, equal names."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class _Line:
    """What a line says."""

    version: int
    now: Annotated[float, pydantic.Field(ge=0, le=MOMENT_MOST)]
    tick: float
    line: int
    wanted: str
    facts: Facts
    plan: Plan
    specs: dict[str, Any] | None = None
    previous: Plan | Literal["line before"] | None = "line before"


@dataclass(frozen=True, slots=True)
class _Version:
    version: int


@cache
def _reader(of: type[T]) -> pydantic.TypeAdapter[T]:
    return pydantic.TypeAdapter(of)


def _line(text: str, where: str) -> _Line:
    if len(text) > LINE_MOST:
        raise ValueError(f"it has more than {LINE_MOST} characters")
    # Only these texts stand for numbers; where there is none of them, a number is a number.
    strict = not any(f'"{word}"' in text for word in NO_NUMBERS.values())
    try:
        found: _Line = _reader(_Line).validate_json(text, strict=strict)
    except pydantic.ValidationError:
        # Another version may have other members: its number counts first.
        _check(_reader(_Version).validate_json(text, strict=True).version, where)
        raise
    _check(found.version, where)
    return found


def _previous(found: _Line, before: tuple[int, Plan] | None) -> tuple[Plan | None, bool]:
    """Return the plan that a line's plan was made after, and whether that is known."""
    if found.previous != "line before":
        return found.previous, True
    if before is not None and before[0] + 1 == found.line:
        return before[1], True
    return None, False


def _check(version: int, where: str) -> None:
    if version != VERSION:
        raise RecordError(
            f"{where} is of version {version}, and this release reads version {VERSION}; use the release that wrote it"
        )


def _specs(found: _Line, known: dict[str, Wanted]) -> Wanted:
    if found.wanted not in known:
        if found.specs is None:
            raise ValueError("the line with its specs could not be read")
        known[found.wanted] = _read_wanted(found.specs)
    return known[found.wanted]


def _reason(error: Exception) -> str:
    if isinstance(error, pydantic.ValidationError):
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"{where}: {first['msg']}" if where else first["msg"]
    return str(error) or type(error).__name__


def _wanted(wanted: Wanted) -> dict[str, Any]:
    return {
        "pools": [_spec(pool, exclude={"pod_template"}) for pool in wanted.pools],
        "capacities": [_spec(capacity, exclude=set()) for capacity in wanted.capacities],
    }


def _spec(item: PoolSpec | CapacitySpec, exclude: set[str]) -> dict[str, Any]:
    own = {f.name: getattr(item, f.name) for f in fields(item) if f.name != "spec"}
    return {**plain(own), "spec": item.spec.model_dump(mode="json", by_alias=True, exclude=exclude)}


def _read_wanted(specs: Mapping[str, Any]) -> Wanted:
    return Wanted(
        pools=tuple(PoolSpec(**_members(PoolSpec, p, ClassSpec)) for p in specs.get("pools", ())),
        capacities=tuple(
            CapacitySpec(**_members(CapacitySpec, c, DownstreamSpec)) for c in specs.get("capacities", ())
        ),
    )


def _members(of: type, written: Mapping[str, Any], model: type[pydantic.BaseModel]) -> dict[str, Any]:
    own = {f.name: written[f.name] for f in fields(of) if f.name in written and f.name != "spec"}
    return {**own, "spec": _model(model, written["spec"])}


def _model(model: type[M], written: Any) -> M:
    """Read a spec, without the members that this release does not know."""
    try:
        return model.model_validate(written)
    except pydantic.ValidationError as error:
        unknown = [e["loc"] for e in error.errors(include_url=False) if e["type"] == "extra_forbidden"]
        if not unknown:
            raise
        return model.model_validate(_without(written, unknown))


def _without(value: Any, paths: Iterable[tuple[int | str, ...]]) -> Any:
    """Return a value of JSON without the members at these paths."""
    copy = json.loads(json.dumps(value))
    for path in paths:
        at = copy
        for step in path[:-1]:
            at = at[step]
        del at[path[-1]]
    return copy
