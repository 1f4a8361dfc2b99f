"""The operator with the chart's rights and no others: what it uses is what it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from services.helm import render
from services.operators import Operated, job_class, job_queue, secret
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from services.custom_resources import Resources
    from services.databases import Database
    from services.kubernetes import Cluster

RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/{}/{}"
Right = tuple[str, str, str]
"""API group, resource, verb."""
APPLIED = {
    ("apps", "deployments", "create"),
    ("", "serviceaccounts", "create"),
    ("policy", "poddisruptionbudgets", "create"),
    ("networking.k8s.io", "networkpolicies", "create"),
}
"""What applying something new takes beside `patch`, which is the one verb that an audit shows of it."""


@pytest.fixture
def operated(controllers: Cluster, resources: Resources) -> Iterator[Operated]:
    made = Operated(controllers, resources)
    yield made
    made.stop()


def install(cluster: Cluster, release: Any) -> str:
    """Put the chart's rights into the cluster, and return the name of the account that has them."""
    for found in release.of("ServiceAccount", "Role", "RoleBinding"):
        metadata = found["metadata"]
        plural = f"{found['kind'].lower()}s"
        path = RBAC.format(metadata["namespace"], plural, metadata["name"])
        if found["kind"] == "ServiceAccount":
            path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{metadata['name']}"
        cluster.apply(path, found)
    name: str = release.one("ServiceAccount")["metadata"]["name"]
    return name


def granted(release: Any) -> set[Right]:
    return {
        (group, resource, verb)
        for role in release.of("Role")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(entries: list[dict[str, Any]]) -> set[Right]:
    found = set()
    for entry in entries:
        about = entry.get("objectRef")
        if about is not None:
            resource = "/".join(part for part in (about["resource"], about.get("subresource")) if part)
            found.add((about.get("apiGroup", ""), resource, entry["verb"]))
    return found


def test_it_uses_what_it_has_and_is_never_refused(operated: Operated, database: Database) -> None:
    cluster, namespace = operated.cluster, operated.namespace
    release = render({"namespaces": [namespace], "workers": {"networkPolicy": True}}, namespace=namespace)
    account = install(cluster, release)
    lease = release.environment["JOBQUEUE_OPERATOR_LEASE_NAME"]
    operated.put(
        {
            "apiVersion": "jobqueue.dev/v1alpha1",
            "kind": "DownstreamCapacity",
            "metadata": {"name": "orders"},
            "spec": {"units": 8},
        },
        secret("shop-operator", database),
        secret("shop-worker", database),
        job_queue("shop", job_class(capacity={"ref": {"name": "orders"}}), job_class("images", replicas={"min": 2})),
    )
    process = operated.start(
        token=cluster.token_for(account, namespace),
        standalone="false",
        lease_namespace=namespace,
        lease_name=lease,
        network_policy="true",
    )
    operated.until("Ready", "True")
    eventually(lambda: len(operated.pods("images")) == 2, within=20)
    # Neither is ready, so both can go at once: one pod is marked as cheap to delete, then the number falls.
    operated.put(
        job_queue("shop", job_class(capacity={"ref": {"name": "orders"}}), job_class("images", replicas={"min": 1}))
    )
    eventually(lambda: operated.deployment("shop-images")["spec"]["replicas"] == 1, within=20)
    operated.put(job_queue("shop", job_class(capacity={"ref": {"name": "orders"}})))
    eventually(
        lambda: operated.object("/apis/networking.k8s.io/v1", "networkpolicies", "shop-images") is None, within=20
    )

    entries = cluster.asked(f"system:serviceaccount:{namespace}:{account}")
    refused = [(e["verb"], e["objectRef"]) for e in entries if e["responseStatus"]["code"] == 403]
    assert refused == [], process.text
    assert "orbidden" not in process.text
    assert used(entries) - granted(release) == set()
    assert granted(release) - used(entries) == APPLIED
