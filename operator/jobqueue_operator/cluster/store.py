"""What manifests there are: told by Kopf as they change, and listed anew now and then, whatever was missed."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jobqueue_operator.manifest import validate
from jobqueue_operator.planner.workload.names import RESTART
from jobqueue_operator.platforms.kubernetes.pods import moment
from jobqueue_operator.resources import DownstreamCapacity, JobQueue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jobqueue_operator.platforms.kubernetes.api import Object

log = logging.getLogger(__name__)

Key = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One manifest as the API server has it."""

    key: Key
    uid: str
    generation: int
    created_at: float
    manifest: JobQueue | DownstreamCapacity | None
    """None when it is not valid."""
    problems: tuple[str, ...]
    status: Mapping[str, Any]
    restarts: Mapping[str, str] = field(default_factory=dict)
    """By class: when new workers were asked for."""

    @property
    def queue(self) -> JobQueue | None:
        """It, where it is a valid JobQueue."""
        return self.manifest if isinstance(self.manifest, JobQueue) else None

    @property
    def downstream(self) -> DownstreamCapacity | None:
        """It, where it is a valid DownstreamCapacity."""
        return self.manifest if isinstance(self.manifest, DownstreamCapacity) else None


class Store:
    """The manifests of one kind. An object is read once for each of its generations."""

    def __init__(self) -> None:
        self.known: dict[Key, Known] = {}
        self.gone: dict[Key, Known] = {}
        """Deleted since it was last asked for, with what they were."""

    def put(self, thing: Object) -> bool:
        """Take an object as it is now. Return whether what it asks for is news."""
        found = _read(thing, self.known.get(_key(thing)))
        before = self.known.get(found.key)
        self.known[found.key] = found
        return before is None or (before.uid, before.generation, before.restarts) != (
            found.uid,
            found.generation,
            found.restarts,
        )

    def drop(self, thing: Object) -> None:
        """Take an object as deleted, unless it was made anew."""
        known = self.known.get(_key(thing))
        if known is not None and known.uid == thing["metadata"].get("uid"):
            self.gone[known.key] = self.known.pop(known.key)

    def replace(self, things: Iterable[Object]) -> None:
        """Take these for all there are."""
        keys = set()
        for thing in things:
            keys.add(_key(thing))
            self.put(thing)
        for key in self.known.keys() - keys:
            self.gone[key] = self.known.pop(key)

    def take_gone(self) -> list[Known]:
        """Return what was deleted since the last call."""
        found, self.gone = list(self.gone.values()), {}
        return found


def _key(thing: Object) -> Key:
    return thing["metadata"]["namespace"], thing["metadata"]["name"]


def _validate(thing: Object) -> tuple[JobQueue | DownstreamCapacity | None, tuple[str, ...]]:
    """Return an object as its model, or every problem with it; whatever it is, it is no problem of any other."""
    try:
        manifest, found = validate(
            {name: thing[name] for name in ("apiVersion", "kind", "metadata", "spec") if name in thing}
        )
    except Exception as error:
        log.exception("%s %s/%s cannot be read", thing.get("kind"), *_key(thing))
        return None, (f"spec: cannot be read ({type(error).__name__}); nest podTemplate less deeply",)
    return None if found else manifest, tuple(str(problem) for problem in found)


def _read(thing: Object, before: Known | None) -> Known:
    metadata = thing["metadata"]
    uid, generation = metadata.get("uid", ""), metadata.get("generation", 0)
    annotations = metadata.get("annotations") or {}
    if before is not None and (before.uid, before.generation) == (uid, generation):
        manifest, problems = before.manifest, before.problems
    else:
        manifest, problems = _validate(thing)
    return Known(
        key=_key(thing),
        uid=uid,
        generation=generation,
        created_at=moment(metadata["creationTimestamp"]),
        manifest=manifest,
        problems=problems,
        status=thing.get("status") or {},
        restarts={k.removeprefix(RESTART): v for k, v in annotations.items() if k.startswith(RESTART)},
    )
