"""The status of JobQueues as JSON. Moments are ISO 8601 in UTC, spans seconds, what is unknown null."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from jobqueue_operator.plugin import holding

if TYPE_CHECKING:
    from jobqueue_operator.plugin.holding import Hold
    from jobqueue_operator.plugin.reading import Class, Queue


def job_queue(queue: Queue) -> dict[str, Any]:
    """Return the members of a Queue, and with it and each class `held_back_by`."""
    members = asdict(queue)
    members["held_back_by"] = _holds(holding.of_queue(queue))
    members["classes"] = [class_(queue, found) for found in queue.classes]
    for capacity in members["capacities"]:
        capacity["shares"] = [_named(share) for share in capacity["shares"]]
    return members


def class_(queue: Queue, found: Class) -> dict[str, Any]:
    """Return the members of a Class, and `held_back_by`."""
    return {**asdict(found), "held_back_by": _holds(holding.of_class(queue, found))}


def _holds(holds: list[Hold]) -> list[dict[str, Any]]:
    return [asdict(hold) for hold in holds]


def _named(share: dict[str, Any]) -> dict[str, Any]:
    """Give `class` its name: in Python that word is taken."""
    return {("class" if key == "class_" else key): value for key, value in share.items()}
