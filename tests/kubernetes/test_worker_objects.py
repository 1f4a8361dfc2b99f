"""What is made of a class, and the checker of its pods, before a real API server."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from jobqueue_operator.planner import workload
from services.kubernetes import Refused
from unit import test_restricted
from unit.planner.workload import shop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from services.kubernetes import Cluster

RABBITMQ = {"type": "RabbitMQ", "rabbitmq": {"secretRef": {"name": "broker-login"}}}
PLURALS = {
    "ServiceAccount": "api/v1/namespaces/{}/serviceaccounts",
    "Deployment": "apis/apps/v1/namespaces/{}/deployments",
    "PodDisruptionBudget": "apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "NetworkPolicy": "apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
}


@pytest.fixture
def restricted(cluster: Cluster, namespace: str) -> str:
    """A namespace that refuses pods which are not restricted."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    path = f"/api/v1/namespaces/{namespace}"
    cluster.request("PATCH", path, {"metadata": {"labels": labels}}, content="application/merge-patch+json")
    return namespace


def lost(sent: Any, returned: Any, place: str = "") -> Iterator[str]:
    """Name the places at which the server does not hold what it was sent."""
    if isinstance(sent, dict) and isinstance(returned, dict):
        for name, value in sent.items():
            yield from lost(value, returned.get(name), f"{place}.{name}")
    elif isinstance(sent, list) and isinstance(returned, list) and len(sent) == len(returned):
        for position, pair in enumerate(zip(sent, returned, strict=True)):
            yield from lost(*pair, f"{place}[{position}]")
    elif sent != returned:
        yield place


@pytest.mark.parametrize("fields", [{}, {"wakeup": RABBITMQ}, {"email__podTemplate": {}}], ids=str)
def test_a_server_takes_the_objects_keeps_them_as_they_are_and_sees_no_change_in_a_second(
    cluster: Cluster, namespace: str, fields: dict[str, Any]
) -> None:
    queue = shop.shop(**fields)
    queue = queue.model_copy(update={"metadata": queue.metadata.model_copy(update={"namespace": namespace})})
    made = shop.made(queue, restarted_at="2026-12-03T07:00:00Z", network_policy=True)
    for each in (
        workload.service_account(queue, owner_uid=shop.OWNER),
        workload.scaled(made, replicas=3, rolling=workload.Rolling(1, 1, keeps=True)),
        made.disruption_budget,
        made.network_policy,
    ):
        assert each is not None
        path = f"/{PLURALS[each['kind']].format(namespace)}/{each['metadata']['name']}"
        first, second = (cluster.apply(path, each, fieldValidation="Strict") for _ in range(2))
        assert list(lost(each, first)) == []
        # Controllers may have written a status in between, which is another version and no change of what was asked.
        assert first["metadata"].get("generation") == second["metadata"].get("generation")
        assert first.get("spec") == second.get("spec")


def try_pod(cluster: Cluster, namespace: str, spec: dict[str, Any]) -> None:
    pod = {"metadata": {"name": "one"}, "spec": copy.deepcopy(spec)}
    for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
        container.setdefault("image", "registry.example/some:1")
    cluster.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod, dryRun="All", fieldValidation="Strict")


def test_a_restricted_namespace_admits_the_pods(cluster: Cluster, restricted: str) -> None:
    cluster.apply(
        f"/api/v1/namespaces/{restricted}/serviceaccounts/shop-worker",
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "shop-worker"}},
    )
    for fields in ({}, {"wakeup": RABBITMQ}):
        try_pod(cluster, restricted, shop.pod(shop.shop(**fields, email__podTemplate={})))


def test_the_checker_of_pods_agrees_with_admission(cluster: Cluster, restricted: str) -> None:
    try_pod(cluster, restricted, test_restricted.GOOD)
    for place, value, reason in test_restricted.BAD:
        with pytest.raises(Refused) as caught:
            try_pod(cluster, restricted, test_restricted.spoilt(place, value))
        # Some are refused earlier, as they make no sense whatever the namespace.
        assert caught.value.status in {403, 422}, reason
        assert 'violates PodSecurity "restricted' in caught.value.message or caught.value.status == 422, reason
