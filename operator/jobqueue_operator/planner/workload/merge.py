"""A user's podTemplate over ours: a strategic merge, by the merge keys that Kubernetes gives its own types.

Mappings are merged field by field, and `null` deletes a field. Lists whose elements have a name are merged element by
element, ours first and in our order; other lists take the place of ours. An element that is one of several kinds (a
volume, a variable) keeps nothing of ours that the user's does not mention, so that its kind can be changed.
"""

from __future__ import annotations

from typing import Any

KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "topologySpreadConstraints": "topologyKey",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
}
"""What names an element of these lists, by the list's field."""
ONE_OF = frozenset({"env", "volumes"})
"""Lists of elements that are one of several kinds."""
APPENDED = frozenset({"tolerations"})
"""Lists without a key whose elements are added to ours."""


def merge(ours: Any, theirs: Any, field: str = "") -> Any:
    """Return `theirs` over `ours`: any JSON values, at the field of this name. Changes neither; never raises.

    Merging the same again changes nothing.
    """
    if isinstance(theirs, dict):
        return _mapping(ours if isinstance(ours, dict) else {}, theirs)
    if isinstance(theirs, list):
        mine = ours if isinstance(ours, list) else []
        if field in APPENDED:
            return [*mine, *(element for element in theirs if element not in mine)]
        if field in KEYS:
            return _elements(mine, theirs, field)
    return theirs


def _mapping(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    merged = {name: value for name, value in ours.items() if theirs.get(name, value) is not None}
    merged.update((name, merge(ours.get(name), value, name)) for name, value in theirs.items() if value is not None)
    return merged


def _elements(ours: list[Any], theirs: list[Any], field: str) -> list[Any]:
    key = KEYS[field]
    if not all(_named(element, key) for element in [*ours, *theirs]):
        return theirs
    merged = {element[key]: element for element in ours}
    for element in theirs:
        mine = merged.get(element[key], {})
        kept = {name: value for name, value in mine.items() if name in element} if field in ONE_OF else mine
        merged[element[key]] = _mapping(kept, element)
    return list(merged.values())


def _named(element: Any, key: str) -> bool:
    return isinstance(element, dict) and isinstance(element.get(key), str | int)
