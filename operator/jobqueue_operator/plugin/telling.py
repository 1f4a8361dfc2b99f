"""`status`: what is read for it."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from jobqueue.cli.writing import printable, write, write_json
from jobqueue_operator.plugin import answer, reading, words
from jobqueue_operator.plugin.access import LISTED_MOST, Cluster
from jobqueue_operator.plugin.refusals import Forbidden, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jobqueue_operator.plugin.options import Aim


def all_(aim: Aim, *, as_json: bool) -> None:
    """Write a line for every JobQueue of a namespace."""
    cluster, now = Cluster(aim), datetime.now(UTC)
    queues = [reading.job_queue(each, reading.Parts(), now=now) for each in cluster.job_queues()]
    if as_json:
        write_json([answer.job_queue(queue) for queue in queues])
    elif not queues:
        write(f"no JobQueues in namespace {cluster.namespace}")
    else:
        for line in words.listing(queues):
            write(line)


def one(aim: Aim, name: str, *, as_json: bool) -> None:
    """Write all that there is to say of one JobQueue."""
    cluster, now = Cluster(aim), datetime.now(UTC)
    queue = cluster.job_queue(name)
    found = reading.job_queue(queue, gather(cluster, queue), now=now)
    if as_json:
        write_json(answer.job_queue(found))
        return
    for line in words.status(found, now):
        write(line)
    warn(found.unread)


def gather(cluster: Cluster, queue: dict[str, Any]) -> reading.Parts:
    """Read what belongs to a JobQueue. What may not be read is missing, and said in `unread`."""
    name = queue["metadata"]["name"]
    found = downstreams(cluster, queue)
    unread = [*found.unread]
    return reading.Parts(
        deployments=_may(partial(cluster.deployments, name), unread),
        pods=_may(partial(cluster.pods, name), unread),
        capacities=found.capacities,
        unread=unread,
    )


def downstreams(cluster: Cluster, queue: dict[str, Any]) -> reading.Parts:
    """Read the downstreams alone that a JobQueue's classes refer to."""
    unread: list[str] = []
    found = [_may(partial(_capacity, cluster, *ref), unread) for ref in reading.references(queue)]
    return reading.Parts(capacities=[each for one in found for each in one], unread=unread)


def _may(read: Callable[[], list[dict[str, Any]]], unread: list[str]) -> list[dict[str, Any]]:
    """Read what may be read; add to `unread` what may not."""
    try:
        found = read()
    except (Forbidden, NotFound) as error:
        unread.append(str(error))
        return []
    if len(found) == LISTED_MOST:
        unread.append(f"only the first {LISTED_MOST} were read of what belongs to this JobQueue")
    return found


def _capacity(cluster: Cluster, namespace: str, name: str) -> list[dict[str, Any]]:
    return [cluster.capacity(namespace, name)]


def warn(texts: Iterable[str]) -> None:
    """Say on standard error what is missing from an answer."""
    for text in texts:
        sys.stderr.write(f"warning: {printable(text)}\n")
