"""`pause`, `resume` and `restart`: what they change, and what they say they changed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from jobqueue.cli.writing import write, write_json
from jobqueue_operator.planner.workload.names import RESTART
from jobqueue_operator.plugin import patches
from jobqueue_operator.plugin.access import Cluster
from jobqueue_operator.plugin.refusals import Changed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobqueue_operator.plugin.options import Aim

TRIES = 5
"""Times that a change is worked out anew because the object was changed meanwhile."""


def pause(aim: Aim, name: str, asked: Sequence[str], *, paused: bool, as_json: bool) -> None:
    """Pause or resume classes; nothing to do is a success, and said."""
    cluster = Cluster(aim)
    done = _patched(cluster, name, asked, paused=paused)
    if as_json:
        write_json(
            {
                "namespace": cluster.namespace,
                "name": name,
                "paused": paused,
                "changed": done.changed,
                "unchanged": done.unchanged,
            }
        )
        return
    for class_ in done.changed:
        write(
            f"{name}: {class_} is paused: its jobs wait, running ones finish, its workers stay"
            if paused
            else f"{name}: {class_} claims again"
        )
    for class_ in done.unchanged:
        write(f"{name}: {class_} was {'paused already' if paused else 'not paused'}")


def restart(aim: Aim, name: str, class_: str, *, as_json: bool) -> None:
    """Ask for a class's workers to be replaced."""
    cluster = Cluster(aim)
    patches.chosen(cluster.job_queue(name), [class_])
    patch = patches.restarting(class_, datetime.now(UTC))
    cluster.change(name, patch, kind="merge-patch")
    moment = patch["metadata"]["annotations"][f"{RESTART}{class_}"]
    if as_json:
        write_json({"namespace": cluster.namespace, "name": name, "class": class_, "restarted_at": moment})
    else:
        write(
            f"{name}: the workers of {class_} are replaced one by one ({RESTART}{class_}: {moment}); "
            f"`kubectl jobqueue status {name} -n {cluster.namespace}` shows how far it is"
        )


def _patched(cluster: Cluster, name: str, asked: Sequence[str], *, paused: bool) -> patches.Pausing:
    for left in reversed(range(TRIES)):
        wanted = patches.pausing(cluster.job_queue(name), asked, paused=paused)
        if not wanted.patch:
            break
        try:
            cluster.change(name, list(wanted.patch), kind="json-patch")
        except Changed:
            if not left:
                raise
        else:
            break
    return wanted
