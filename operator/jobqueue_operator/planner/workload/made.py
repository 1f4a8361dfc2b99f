"""The objects of one class, and what stands in the way of making them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobqueue_operator.planner.workload import names, pod, reserved, shape
from jobqueue_operator.planner.workload.merge import merge
from jobqueue_operator.resources import API_VERSION
from jobqueue_operator.resources.problems import Problem, path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobqueue_operator.planner.workload.rolling import Rolling
    from jobqueue_operator.resources import ClassSpec, JobQueue
    from jobqueue_operator.resources.problems import Location

REVISIONS_KEPT = 2
"""Old ReplicaSets kept: the manifest is what is rolled back, not the Deployment."""
PROGRESS_DEADLINE = 600
"""Seconds without progress, beyond the grace period, after which a rollout counts as stalled: a new worker may have to
wait for the units of an old one that is still draining."""
DNS_PORT = 53
DATABASE_PORTS = (5432, 6432)
"""PostgreSQL's and PgBouncer's."""
BROKER_PORTS = (5671, 5672)
"""AMQP's, with TLS and without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """One class's objects, for server-side apply. A server returns each as it is sent, and more: zeros are left out."""

    name: str
    """Of each of them."""
    revision: str
    """10 hex digits of the pod template; differs when new pods would."""
    deployment: Mapping[str, Any]
    """Without replicas and strategy: see `scaled`."""
    disruption_budget: Mapping[str, Any]
    network_policy: Mapping[str, Any] | None
    grace: int
    """Seconds from a pod's deletion to SIGKILL."""


def objects(
    queue: JobQueue,
    spec: ClassSpec,
    *,
    owner_uid: str,
    restarted_at: str | None = None,
    network_policy: bool = False,
) -> Made:
    """Make a class's objects.

    `owner_uid` is the JobQueue's; the objects go with it. Another `restarted_at` (an RFC 3339 time) makes new pods.
    Raises ValueError when `problems` finds any.
    """
    if wrong := problems(queue, spec):
        raise ValueError("; ".join(map(str, wrong)))
    template = merge(pod.template(queue, spec), spec.pod_template)
    if restarted_at is not None:
        template = merge(template, {"metadata": {"annotations": {names.RESTARTED_AT: restarted_at}}})
    revision = _revision(template)
    mark = {"labels": {names.REVISION: revision}, "annotations": {names.REVISION: revision}}
    grace = pod.grace(spec)
    selected = {"matchLabels": names.selector(queue.metadata.name, spec.name)}
    name = names.object_name(queue.metadata.name, spec.name)
    head = _head(queue, owner_uid, name, names.class_labels(queue.metadata.name, spec.name))
    return Made(
        name=name,
        revision=revision,
        deployment={
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": head,
            "spec": {
                "selector": selected,
                "revisionHistoryLimit": REVISIONS_KEPT,
                "progressDeadlineSeconds": PROGRESS_DEADLINE + grace,
                "template": merge(template, {"metadata": mark}),
            },
        },
        disruption_budget={
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": head,
            "spec": {"selector": selected, "maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
        },
        network_policy=_network_policy(queue, head, selected) if network_policy else None,
        grace=grace,
    )


def scaled(made: Made, *, replicas: int, rolling: Rolling) -> dict[str, Any]:
    """Return the Deployment to apply."""
    return {
        **made.deployment,
        "spec": {**made.deployment["spec"], "replicas": replicas, **rolling.fields()},
    }


def service_account(queue: JobQueue, *, owner_uid: str) -> dict[str, Any]:
    """Return the account of a JobQueue's workers: a name without a token, which nothing is granted to."""
    name = queue.metadata.name
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _head(queue, owner_uid, names.account_name(name), names.queue_labels(name)),
        "automountServiceAccountToken": False,
    }


def problems(queue: JobQueue, spec: ClassSpec) -> list[Problem]:
    """Return what a cluster needs and the manifest lacks, and what is wrong with the class's podTemplate.

    Paths are the JobQueue's: `spec.image`, `spec.classes[0].podTemplate.spec.containers[0].args`. Whether Kubernetes
    would take the merged template is for its API server to say.
    """
    found = []
    if queue.spec.database is None:
        found.append(
            Problem(
                "spec.database",
                "is missing; workers in a cluster find their database by it: write workerSecretRef and "
                "operatorSecretRef",
            )
        )
    at = _place(queue, spec)
    wrong = shape.problems(spec.pod_template, at)
    if not wrong:
        ours = pod.template(queue, spec)
        merged = merge(ours, spec.pod_template)
        wrong = reserved.problems(ours, spec.pod_template, merged, at)
        if not wrong and not reserved.look(merged, ("spec", "containers", ("name", pod.CONTAINER), "image")):
            where = "spec.image" if queue.spec.image is None else path((*at, "spec", "containers"))
            found.append(
                Problem(
                    where, "names no image; write the one that your app is in, e.g. registry.example/shop-worker:1.0"
                )
            )
    return found + wrong


def _place(queue: JobQueue, spec: ClassSpec) -> Location:
    position = next((i for i, each in enumerate(queue.spec.classes) if each.name == spec.name), None)
    where = ("class", spec.name) if position is None else ("spec", "classes", position)
    return (*where, "podTemplate")


def _revision(template: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]


def _head(queue: JobQueue, owner_uid: str, name: str, labels: dict[str, str]) -> dict[str, Any]:
    """Return the metadata of an object that a JobQueue owns."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": "JobQueue",
        "name": queue.metadata.name,
        "uid": owner_uid,
        "controller": True,
        # The JobQueue is gone at once; what it owned follows.
        "blockOwnerDeletion": False,
    }
    return {"name": name, "namespace": queue.metadata.namespace, "labels": labels, "ownerReferences": [owner]}


def _network_policy(queue: JobQueue, head: dict[str, Any], selected: dict[str, Any]) -> dict[str, Any]:
    """Allow what every worker needs. Policies add up: what the handlers talk to is for the user's own policy."""
    ports = DATABASE_PORTS if queue.spec.wakeup.rabbitmq is None else (*DATABASE_PORTS, *BROKER_PORTS)
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": head,
        "spec": {
            "podSelector": selected,
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [{"protocol": "TCP", "port": pod.HEALTH_PORT}]}],
            "egress": [
                {"ports": [{"protocol": protocol, "port": DNS_PORT} for protocol in ("UDP", "TCP")]},
                {"ports": [{"protocol": "TCP", "port": port} for port in ports]},
            ],
        },
    }
