"""Whether a podTemplate has the form that merging it takes: types, names, depth. The rest is for the API server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from jobqueue_operator.planner.workload.merge import KEYS
from jobqueue_operator.resources.problems import Problem, path

if TYPE_CHECKING:
    from jobqueue_operator.resources.problems import Location

DEPTH_MOST = 30
"""Levels of a podTemplate; Kubernetes' own types have about half as many."""
PROBLEMS_MOST = 20
"""Problems reported of one podTemplate."""
PORT_MOST = 65_535

Check: TypeAlias = Callable[[Any, "Location"], Iterable[Problem]]


def problems(template: Mapping[str, Any], at: Location) -> list[Problem]:
    """Return what is wrong with the form of a podTemplate that stands at `at`. Takes any JSON, never raises."""
    return list(_depth(template, at)) or list(islice(_TEMPLATE(template, at), PROBLEMS_MOST))


def _depth(template: Mapping[str, Any], at: Location) -> Iterator[Problem]:
    level: list[Any] = [template]
    for _ in range(DEPTH_MOST):
        level = [inner for value in level for inner in _inner(value)]
    if level:
        yield Problem(path(at), f"is nested more than {DEPTH_MOST} levels deep; flatten it")


def _inner(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _is_not(value: Any, what: str, at: Location) -> Problem:
    # The value itself is not repeated: it may be a password.
    kinds = {dict: "a mapping", list: "a list", bool: "true or false", int: "a number", float: "a number", str: "text"}
    return Problem(path(at), f"{kinds.get(type(value), 'null')} is not {what}")


def _text(value: Any, at: Location) -> Iterator[Problem]:
    if value is not None and not isinstance(value, str):
        yield _is_not(value, "text; put it in quotes", at)


def _quantity(value: Any, at: Location) -> Iterator[Problem]:
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        yield _is_not(value, "a quantity; write e.g. 500m or 256Mi", at)


def _flag(value: Any, at: Location) -> Iterator[Problem]:
    if value is not None and not isinstance(value, bool):
        yield _is_not(value, "true or false; write one of them, without quotes", at)


def _whole(value: Any, at: Location) -> Iterator[Problem]:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        yield _is_not(value, "a whole number; write e.g. 30, without quotes", at)


def _port(value: Any, at: Location) -> Iterator[Problem]:
    if isinstance(value, bool) or not isinstance(value, int):
        yield _is_not(value, "a port; write e.g. 9000, without quotes", at)
    elif not 1 <= value <= PORT_MOST:
        yield Problem(path(at), f"is not a port; write a number from 1 to {PORT_MOST}")


def _any(value: Any, at: Location) -> Iterator[Problem]:
    """Leave it to the API server, but for directives of other kinds of merge."""
    for name in value if isinstance(value, dict) else ():
        if name.startswith("$"):
            yield Problem(path((*at, name)), "is a directive, which is not read here; write null to delete a field")
    for name, inner in _items(value):
        yield from _any(inner, (*at, name))


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    return value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()


def _mapping(*, closed: bool = False, **fields: Check) -> Check:
    """Check a mapping; of a `closed` one, that it has no other fields."""

    def check(value: Any, at: Location) -> Iterator[Problem]:
        if value is None:
            return
        if not isinstance(value, dict):
            yield _is_not(value, "a mapping; write the fields below it", at)
            return
        for name, inner in value.items():
            if closed and name not in fields:
                yield Problem(path((*at, name)), f"is not a field here; the fields are {', '.join(fields)}")
            elif name in fields:
                yield from fields[name](inner, (*at, name))
            else:
                yield from _any({name: inner}, at)

    return check


def _each(inner: Check) -> Check:
    """Check the values of a mapping with names of the user's own."""

    def check(value: Any, at: Location) -> Iterator[Problem]:
        if value is not None and not isinstance(value, dict):
            yield _is_not(value, "a mapping; write `name: value` below it", at)
        for name, entry in value.items() if isinstance(value, dict) else ():
            yield from inner(entry, (*at, name))

    return check


def _list(inner: Check, key: str | None = None, key_check: Check = _text) -> Check:
    """Check a list's entries, and with `key` that each has it and none has another's."""

    def check(value: Any, at: Location) -> Iterator[Problem]:
        if value is None:
            return
        if not isinstance(value, list):
            yield _is_not(value, "a list; start each entry with '- '", at)
            return
        seen: set[Any] = set()
        for position, entry in enumerate(value):
            here = (*at, position)
            if entry is None:
                yield Problem(path(here), "is empty; write the entry or leave it out")
                continue
            wrong = list(inner(entry, here))
            yield from wrong
            if key is not None and isinstance(entry, dict):
                yield from _key(entry, key, key_check, here, seen)

    return check


def _key(entry: dict[str, Any], key: str, key_check: Check, at: Location, seen: set[Any]) -> Iterator[Problem]:
    name = entry.get(key)
    if name is None or name == "":
        yield Problem(path((*at, key)), f"is missing; entries here are told apart by their {key}")
        return
    wrong = list(key_check(name, (*at, key)))
    yield from wrong
    if not wrong:
        if name in seen:
            yield Problem(path((*at, key)), "appears twice; keep one")
        seen.add(name)


def _keyed(field: str, inner: Check, key_check: Check = _text) -> Check:
    return _list(inner, KEYS[field], key_check)


_ENTRY = _mapping()
_PROBE = _mapping(
    periodSeconds=_whole,
    timeoutSeconds=_whole,
    failureThreshold=_whole,
    successThreshold=_whole,
    initialDelaySeconds=_whole,
    httpGet=_ENTRY,
    exec=_ENTRY,
    tcpSocket=_ENTRY,
    grpc=_ENTRY,
)
_CONTAINER = _mapping(
    image=_text,
    imagePullPolicy=_text,
    workingDir=_text,
    command=_list(_text),
    args=_list(_text),
    env=_keyed("env", _mapping(value=_text, valueFrom=_ENTRY)),
    envFrom=_list(_ENTRY),
    ports=_keyed("ports", _mapping(name=_text, protocol=_text), _port),
    volumeMounts=_keyed("volumeMounts", _mapping(name=_text, readOnly=_flag, subPath=_text)),
    volumeDevices=_keyed("volumeDevices", _ENTRY),
    resources=_mapping(requests=_each(_quantity), limits=_each(_quantity)),
    securityContext=_ENTRY,
    lifecycle=_mapping(postStart=_ENTRY, preStop=_ENTRY),
    startupProbe=_PROBE,
    livenessProbe=_PROBE,
    readinessProbe=_PROBE,
)
_TEMPLATE = _mapping(
    closed=True,
    metadata=_mapping(closed=True, labels=_each(_text), annotations=_each(_text)),
    spec=_mapping(
        containers=_keyed("containers", _CONTAINER),
        initContainers=_keyed("initContainers", _CONTAINER),
        volumes=_keyed("volumes", _ENTRY),
        imagePullSecrets=_keyed("imagePullSecrets", _ENTRY),
        hostAliases=_keyed("hostAliases", _ENTRY),
        topologySpreadConstraints=_keyed("topologySpreadConstraints", _mapping(maxSkew=_whole)),
        tolerations=_list(_ENTRY),
        nodeSelector=_each(_text),
        affinity=_ENTRY,
        securityContext=_ENTRY,
        serviceAccountName=_text,
        automountServiceAccountToken=_flag,
        priorityClassName=_text,
        runtimeClassName=_text,
        terminationGracePeriodSeconds=_whole,
    ),
)
