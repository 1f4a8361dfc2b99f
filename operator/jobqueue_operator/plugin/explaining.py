"""`explain`: a decision asked of the queue itself, or what the status says of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from jobqueue import queue as calls
from jobqueue import signals
from jobqueue.cli.failure import Refused
from jobqueue.cli.place import connection
from jobqueue.cli.writing import printable, write, write_json
from jobqueue_operator.explain import command, live
from jobqueue_operator.manifest import ManifestError, parse_manifests
from jobqueue_operator.planner.record import Remarks
from jobqueue_operator.plugin import answer, login, passing, patches, reading, telling, words
from jobqueue_operator.plugin.access import Cluster
from jobqueue_operator.plugin.refusals import Forbidden, NotFound
from jobqueue_operator.workload import Workload, workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jobqueue_operator.plugin.options import Aim, Detour

TICK = 5.0
"""Seconds between two looks of an operator, unless its chart says otherwise."""


def explain(aim: Aim, name: str, class_: str | None, secret: str | None, detour: Detour, *, as_json: bool) -> None:
    """Explain the decision for one class, or for all of a JobQueue. Raises Refused."""
    cluster = Cluster(aim)
    queue = cluster.job_queue(name)
    chosen = patches.chosen(queue, [class_] if class_ is not None else [])
    try:
        user = _login(cluster, queue, secret)
    except (Forbidden, NotFound) as error:
        if secret is not None:
            raise
        found = reading.job_queue(queue, telling.gather(cluster, queue), now=datetime.now(UTC))
        _from_status(found, chosen, str(error), as_json=as_json)
        return
    parts = telling.downstreams(cluster, queue)
    remarks = Remarks()
    for text in parts.unread:
        remarks.say(text)
    seen = _snapshot(user, passing.schema(queue), detour)
    registered = {each.class_ for each in seen.classes}
    if missing := [each for each in chosen if each not in registered]:
        raise Refused(
            f"JobQueue {name}: its queue has no class {', '.join(missing)} yet",
            hint="the operator registers classes when it sees them: `kubectl jobqueue status` shows whether it did",
        )
    asked = _workload(cluster, queue, parts, registered, remarks)
    _left_out(parts, asked, remarks)
    command.tell(live.tick(seen, asked, TICK), chosen, remarks, live=True, as_json=as_json)


def _login(cluster: Cluster, queue: Mapping[str, Any], secret: str | None) -> login.Login:
    """Read the Secret that was said, or the support login, or the operator's: the first that may be read."""
    if secret is not None:
        return passing.fetch(cluster, secret)
    first = passing.support(queue["metadata"]["name"])
    try:
        return passing.fetch(cluster, first)
    except (Forbidden, NotFound) as error:
        second, _ = _place(queue)
        if second is None:
            raise
        try:
            return passing.fetch(cluster, second)
        except (Forbidden, NotFound) as also:
            raise Forbidden(f"{error}; {also}", hint=also.hint) from None


def _from_status(found: reading.Queue, chosen: list[str], why: str, *, as_json: bool) -> None:
    classes = [each for each in found.classes if each.name in chosen]
    remark = f"from the status alone, which has no terms of the law and no facts behind it: {why}"
    if as_json:
        remarks = [remark, *found.unread]
        rows = [answer.class_(found, each) for each in classes]
        write_json({"at": None, "source": "status", "remarks": remarks, "classes": rows})
        return
    for position, each in enumerate(classes):
        if position:
            write("")
        for line in words.why(each):
            write(printable(line))
    telling.warn([remark, *found.unread])


def _snapshot(user: login.Login, schema: str, detour: Detour) -> signals.Snapshot:
    with login.used(user, schema, detour), connection(None, None, schema) as conn:
        return signals.decode(calls.snapshot(conn, tick=TICK, schema=schema))


def _workload(
    cluster: Cluster, queue: dict[str, Any], parts: reading.Parts, registered: set[str], remarks: Remarks
) -> Workload:
    """Return what is asked of the queue's database: by this JobQueue, and by those of the namespace that share it.

    Raises ManifestError when this JobQueue is none that an operator would take.
    """
    known = {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in parts.capacities}
    documents = [*map(_document, parts.capacities), _document(_leaning(queue, known))]
    where = f"namespace {cluster.namespace}"
    asked = workload(parse_manifests(_text(documents), name=where), name=where)
    for other in _others(cluster, queue, remarks):
        try:
            more = [*documents, _document(_leaning(other, known))]
            wider = workload(parse_manifests(_text(more), name=where), name=where)
        except ManifestError:
            continue  # an operator refuses it too, and says why in its status
        if {spec.name for spec in wider.classes} <= registered:
            documents, asked = more, wider
    return asked


def _others(cluster: Cluster, queue: Mapping[str, Any], remarks: Remarks) -> list[dict[str, Any]]:
    """Return the other JobQueues of the namespace on the same database."""
    try:
        found = cluster.job_queues()
    except Forbidden as error:
        remarks.say(f"others on the same database are not in these numbers: {error}")
        return []
    name, place = queue["metadata"]["name"], _place(queue)
    return [each for each in found if each["metadata"]["name"] != name and _place(each) == place]


def _left_out(parts: reading.Parts, asked: Workload, remarks: Remarks) -> None:
    """Name who has a share of a downstream and is not in what was asked."""
    inside = {(f"{q.metadata.namespace}/{q.metadata.name}", c.name) for q in asked.queues for c in q.spec.classes}
    for capacity in map(reading.capacity, parts.capacities):
        for share in capacity.shares:
            if (share.job_queue, share.class_) not in inside and share.allocated:
                remarks.say(
                    f"downstream {capacity.name}: {share.job_queue} {share.class_} has {share.allocated} units by its "
                    "status, and is not in these numbers"
                )


def _place(queue: Mapping[str, Any]) -> tuple[str | None, str]:
    database = (queue.get("spec") or {}).get("database") or {}
    return (database.get("operatorSecretRef") or {}).get("name"), passing.schema(queue)


def _leaning(queue: dict[str, Any], known: set[tuple[str, str]]) -> dict[str, Any]:
    """Return a JobQueue without the references to downstreams that could not be read."""
    namespace = queue["metadata"]["namespace"]
    classes = [
        {key: value for key, value in spec.items() if key != "capacity" or reading.reference(spec, namespace) in known}
        for spec in patches.classes(queue)
    ]
    return {**queue, "spec": {**queue["spec"], "classes": classes}}


def _document(found: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {key: found["metadata"][key] for key in ("name", "namespace")}
    return {"apiVersion": found["apiVersion"], "kind": found["kind"], "metadata": metadata, "spec": found["spec"]}


def _text(documents: Iterable[Mapping[str, Any]]) -> str:
    return "\n---\n".join(json.dumps(each, ensure_ascii=False) for each in documents)  # which is YAML
