"""What the other tests here stand on: a control plane that asks who may do what, and cleans up after owners."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from services.kubernetes import Refused
from services.waiting import eventually

if TYPE_CHECKING:
    from services.kubernetes import Cluster


def test_a_service_account_may_what_its_role_says_and_no_more(cluster: Cluster, namespace: str) -> None:
    token = cluster.token_for("default", namespace)
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    with pytest.raises(Refused, match="403: configmaps is forbidden"):
        cluster.request("GET", maps, token=token)
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
    cluster.request("POST", f"{roles}/roles", {"metadata": {"name": "reader"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }
    cluster.request("POST", f"{roles}/rolebindings", binding)

    def allowed() -> bool:  # the authorizer learns of a binding by watch
        try:
            cluster.request("GET", maps, token=token)
        except Refused:
            return False
        return True

    eventually(allowed, what="the binding to hold")
    with pytest.raises(Refused, match="403: configmaps is forbidden"):
        cluster.request("POST", maps, {"metadata": {"name": "a"}}, token=token)


def test_the_official_client_is_an_administrator(cluster: Cluster, namespace: str) -> None:
    import kubernetes.client  # noqa: PLC0415 - takes seconds, and few tests use it

    with cluster.api() as api:
        found = kubernetes.client.CoreV1Api(api).list_namespace()
    assert namespace in {each.metadata.name for each in found.items if each.metadata is not None}


def test_controllers_collect_what_an_owner_leaves_and_empty_a_namespace(controllers: Cluster, namespace: str) -> None:
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    owner = controllers.request("POST", maps, {"metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    controllers.request("POST", maps, {"metadata": {"name": "owned", "ownerReferences": [reference]}})
    controllers.request("DELETE", f"{maps}/owner")
    eventually(lambda: "owned" not in names(controllers, maps), within=60, what="the owned object to be collected")

    other = controllers.create_namespace()
    controllers.request("DELETE", f"/api/v1/namespaces/{other}")
    spaces = "/api/v1/namespaces"
    eventually(lambda: other not in names(controllers, spaces), within=60, what="the namespace to be gone")


def names(cluster: Cluster, path: str) -> set[str]:
    return {each["metadata"]["name"] for each in cluster.request("GET", path)["items"]}
