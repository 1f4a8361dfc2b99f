"""What is changed on a JobQueue, as patches. Pure: objects in, patches out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any

from jobqueue.cli.failure import Refused
from jobqueue_operator.planner.workload.names import RESTART

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class Pausing:
    """A change of `spec.classes[].paused`."""

    patch: tuple[dict[str, Any], ...]
    """JSON patch (RFC 6902); empty when nothing is to be done."""
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    """Classes that are so already."""


def classes(queue: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the classes of a JobQueue's spec."""
    return list((queue.get("spec") or {}).get("classes") or [])


def chosen(queue: dict[str, Any], asked: Sequence[str]) -> list[str]:
    """Return the classes that were asked for, all when none was, in the order of the spec. Raises Refused."""
    known = [str(each["name"]) for each in classes(queue)]
    if unknown := [name for name in asked if name not in known]:
        raise Refused(
            f"class: JobQueue {queue['metadata']['name']} has no class {', '.join(map(repr, unknown))}",
            hint=f"the classes are: {', '.join(known)}",
        )
    return [name for name in known if not asked or name in asked]


def pausing(queue: dict[str, Any], asked: Sequence[str], *, paused: bool) -> Pausing:
    """Pause or resume classes. Raises Refused for one that there is not.

    A class is found by its place in the list, so the patch tests that its name still stands there.
    """
    wanted = chosen(queue, asked)
    patch: list[dict[str, Any]] = []
    changed = []
    for index, spec in enumerate(classes(queue)):
        if spec["name"] in wanted and bool(spec.get("paused", False)) is not paused:
            path = f"/spec/classes/{index}"
            patch.append({"op": "test", "path": f"{path}/name", "value": spec["name"]})
            patch.append({"op": "add", "path": f"{path}/paused", "value": paused})
            changed.append(str(spec["name"]))
    return Pausing(tuple(patch), tuple(changed), tuple(name for name in wanted if name not in changed))


def restarting(class_: str, now: datetime) -> dict[str, Any]:
    """Ask for all workers of a class to be replaced: a merge patch (RFC 7396)."""
    moment = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"metadata": {"annotations": {f"{RESTART}{class_}": moment}}}
