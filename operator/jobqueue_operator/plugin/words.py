"""The status of JobQueues as lines for people. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobqueue.cli.writing import printable, show_seconds, table
from jobqueue_operator.plugin import holding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from jobqueue_operator.plugin.conditions import Condition
    from jobqueue_operator.plugin.holding import Hold
    from jobqueue_operator.plugin.pods import Pod
    from jobqueue_operator.plugin.reading import Capacity, Class, Queue

PODS_SHOWN = 20
"""Pods of a class that are listed, those with something to say first."""
MESSAGE_SHOWN = 100
"""Characters of a message in a table's cell."""


def listing(queues: Sequence[Queue]) -> Iterator[str]:
    """Write one line a JobQueue."""
    rows = [("NAME", "READY", "OLDEST", "READY JOBS", "IN FLIGHT", "DEAD", "REPLICAS", "REASON", "WHAT")]
    for queue in queues:
        ready = queue.condition("Ready")
        rows.append(
            (
                queue.name,
                ready.status if ready is not None else "-",
                _age(queue.oldest_message_age),
                _count(queue.ready_jobs),
                _count(queue.in_flight_jobs),
                _count(queue.dead_jobs),
                _count(queue.replicas),
                queue.reason or "-",
                _headline(queue),
            )
        )
    return table([[printable(cell) for cell in row] for row in rows])


def status(queue: Queue, now: datetime) -> Iterator[str]:
    """Write one JobQueue with its classes, pods and downstreams."""
    return map(printable, _status(queue, now))  # names and messages may have been written by anybody


def why(found: Class) -> Iterator[str]:
    """Write how many workers a class has, why, and what its jobs do: what the status alone can tell."""
    decided = "" if found.desired_replicas in {None, found.replicas} else f", {found.desired_replicas} decided"
    yield f"{found.name}: " + ("no decision yet" if found.replicas is None else f"{_workers(found.replicas)}{decided}")
    if found.reason or found.message:
        yield f"  {found.reason}: {found.message}"
    if found.in_status:
        yield f"  {_jobs(found)}"


def _headline(queue: Queue) -> str:
    ready = queue.condition("Ready")
    if ready is None:
        return next((hold.message for hold in holding.of_queue(queue)), "-")
    if ready.trouble:
        return f"{ready.reason}: {ready.message}"
    held = [found.name for found in queue.classes if holding.of_class(queue, found)]
    return f"held back: {', '.join(held)}" if held else "-"


def _status(queue: Queue, now: datetime) -> Iterator[str]:
    ready = queue.condition("Ready")
    says = "no status yet" if ready is None else f"Ready {ready.status}, {ready.reason}: {ready.message}"
    yield f"JobQueue {queue.name} in namespace {queue.namespace}: {says}"
    if queue.image:
        yield f"  image {queue.image}"
    yield from _holds(holding.of_queue(queue))
    for found in queue.classes:
        yield ""
        yield from why(found)
        if found.deployment is not None:
            made = found.deployment
            yield f"  Deployment {made.name}: {made.ready} of {made.replicas} ready, revision {made.revision or '-'}"
        yield from _holds(holding.of_class(queue, found))
        yield from _pods(found.pods)
    for capacity in queue.capacities:
        yield ""
        yield from _downstream(capacity, f"{queue.namespace}/{queue.name}")
    if queue.conditions:
        yield ""
        yield "conditions"
        yield from _conditions(queue.conditions, now)


def _holds(holds: Sequence[Hold]) -> Iterator[str]:
    if holds:
        yield "  held back by"
        for line in table([(hold.what, hold.message) for hold in holds]):
            yield f"    {line}"


def _jobs(found: Class) -> str:
    waiting = f", the oldest {_age(found.oldest_message_age)}" if found.ready_jobs else ""
    target = f" of {show_seconds(found.target)}" if found.target is not None and waiting else ""
    return (
        f"jobs: {_count(found.ready_jobs)} ready{waiting}{target}; {_count(found.in_flight_jobs)} in flight, "
        f"{_count(found.scheduled_jobs)} scheduled, {_count(found.dead_jobs)} dead"
    )


def _pods(pods: Sequence[Pod]) -> Iterator[str]:
    if not pods:
        return
    first = sorted(pods, key=lambda pod: (not pod.stuck, not pod.message))[:PODS_SHOWN]
    rows = [("POD", "PHASE", "REVISION", "RESTARTS", "AGE", "NODE", "WHAT")]
    rows += [
        (
            pod.name,
            pod.phase,
            pod.revision or "-",
            str(pod.restarts),
            show_seconds(pod.age),
            pod.node or "-",
            pod.message[:MESSAGE_SHOWN],
        )
        for pod in first
    ]
    for line in table(rows):
        yield f"  {line}"
    if len(pods) > len(first):
        yield f"  … and {len(pods) - len(first)} more"


def _downstream(capacity: Capacity, own: str) -> Iterator[str]:
    units = f"{_count(capacity.in_use)} of {_count(capacity.limit)} units in use"
    spec = f", {capacity.units} in all" if capacity.units not in {None, capacity.limit} else ""
    yield f"downstream {capacity.namespace}/{capacity.name}: {units}{spec}"
    for condition in capacity.conditions:
        if condition.trouble:
            yield f"  {condition.type}, {condition.reason}: {condition.message}"
    if capacity.shares:
        rows = [("JOBQUEUE", "CLASS", "ASKS", "GETS", "HELD BACK BY")]
        rows += [
            (
                share.job_queue + (" <" if share.job_queue == own else ""),
                share.class_,
                _count(share.asked),
                _count(share.allocated),
                ", ".join(share.held_back_by) or "-",
            )
            for share in capacity.shares
        ]
        for line in table(rows):
            yield f"  {line}"


def _conditions(conditions: Sequence[Condition], now: datetime) -> Iterator[str]:
    rows = [
        (
            condition.type,
            condition.status,
            show_seconds((now - condition.since).total_seconds()) if condition.since is not None else "-",
            condition.reason,
            condition.message,
        )
        for condition in conditions
    ]
    for line in table([("TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"), *rows]):
        yield f"  {line}"


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def _count(number: int | None) -> str:
    return "-" if number is None else str(number)


def _age(seconds: float | None) -> str:
    return "-" if seconds is None else show_seconds(seconds)
