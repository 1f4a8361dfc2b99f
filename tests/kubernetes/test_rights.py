"""The operator with the chart's rights and no others: what it uses is what it has."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from services.custom_resources import Resources
from services.helm import CLUSTER_SCOPED, path_of, render
from services.operators import Operated, downstream, job_class, job_queue, secret
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from services.databases import Database
    from services.helm import Release
    from services.kubernetes import Cluster
    from services.processes import Process

Right = tuple[str, str, str]
"""API group, resource, verb."""
MADE = (("apps", "deployments"), ("policy", "poddisruptionbudgets"), ("networking.k8s.io", "networkpolicies"))
APPLIED = {
    ("apps", "deployments", "create"),
    ("", "serviceaccounts", "create"),
    ("policy", "poddisruptionbudgets", "create"),
}
"""What applying something new takes beside `patch`, which is the one verb that an audit shows of it."""


@pytest.fixture
def operated(controllers: Cluster, resources: Resources) -> Iterator[Operated]:
    made = Operated(controllers, resources)
    yield made
    made.stop()


@pytest.fixture
def elsewhere(controllers: Cluster) -> Iterator[str]:
    """A namespace that is not the test's, in a cluster that holds no JobQueue, whatever other tests left in theirs."""
    for found in controllers.request("GET", "/apis/jobqueue.dev/v1alpha1/jobqueues")["items"]:
        metadata = found["metadata"]
        controllers.request("DELETE", Resources(controllers, metadata["namespace"]).path("JobQueue", metadata["name"]))
    name = controllers.create_namespace()
    yield name
    controllers.request("DELETE", f"/api/v1/namespaces/{name}")


@contextlib.contextmanager
def install(cluster: Cluster, release: Release) -> Iterator[str]:
    """Have the chart's rights in the cluster; yields the user that has them."""
    rights = release.of("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    for found in rights:
        cluster.apply(path_of(found), found)
    try:
        yield "system:serviceaccount:{namespace}:{name}".format_map(release.one("ServiceAccount")["metadata"])
    finally:
        for found in rights:
            if found["kind"] in CLUSTER_SCOPED:  # the others go with their namespaces
                cluster.request("DELETE", path_of(found))


def granted(release: Release) -> set[Right]:
    """Return what the roles allow that are bound to somebody."""
    return {
        (group, resource, verb)
        for binding in release.of("RoleBinding", "ClusterRoleBinding")
        for rule in release.one(binding["roleRef"]["kind"], binding["roleRef"]["name"])["rules"]
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


def refused(entries: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Return namespace, resource and verb of what was asked for in vain."""
    return [
        (entry["objectRef"].get("namespace", ""), entry["objectRef"]["resource"], entry["verb"])
        for entry in entries
        if entry["responseStatus"]["code"] == 403
    ]


def make_it_do_everything(operated: Operated, database: Database, release: Release, **settings: str) -> Process:
    """Start an operator with a release's rights, and have it read, apply, scale, mark and delete."""
    metadata = release.one("ServiceAccount")["metadata"]
    limited = job_class(capacity={"ref": {"name": "orders"}})
    operated.put(
        downstream("orders", units=8),
        secret("shop-operator", database),
        secret("shop-worker", database),
        job_queue("shop", limited, job_class("images", replicas={"min": 2})),
    )
    process = operated.start(
        token=operated.cluster.token_for(metadata["name"], metadata["namespace"]),
        standalone="false",
        lease_namespace=metadata["namespace"],
        lease_name=release.environment["JOBQUEUE_OPERATOR_LEASE_NAME"],
        network_policy=release.environment["JOBQUEUE_OPERATOR_NETWORK_POLICY"],
        **settings,
    )
    operated.until("Ready", "True")
    eventually(lambda: len(operated.pods("images")) == 2, within=40)
    # Neither is ready, so both can go at once: one pod is marked as cheap to delete, then the number falls.
    operated.put(job_queue("shop", limited, job_class("images", replicas={"min": 1})))
    eventually(lambda: operated.deployment("shop-images")["spec"]["replicas"] == 1, within=40)
    operated.put(job_queue("shop", limited))
    eventually(
        lambda: all(operated.object(f"/apis/{group}/v1", plural, "shop-images") is None for group, plural in MADE),
        within=40,
    )
    return process


def test_in_a_namespace_it_uses_what_it_has_and_is_never_refused(operated: Operated, database: Database) -> None:
    cluster, namespace = operated.cluster, operated.namespace
    release = render({"namespaces": [namespace], "workers": {"networkPolicy": True}}, namespace=namespace)
    with install(cluster, release) as user:
        process = make_it_do_everything(operated, database, release)
        operated.stop()
    entries = cluster.asked(user)
    assert refused(entries) == [], process.text
    assert "orbidden" not in process.text
    assert used(entries) - granted(release) == set()
    assert granted(release) - used(entries) == APPLIED | {("networking.k8s.io", "networkpolicies", "create")}


def test_in_all_of_a_cluster_it_reads_secrets_where_it_may_and_is_refused_nothing_else(
    operated: Operated, database: Database, elsewhere: str
) -> None:
    cluster = operated.cluster
    release = render({"secrets": {"namespaces": [operated.namespace]}}, namespace=elsewhere)
    unbound = Operated(cluster, Resources(cluster, elsewhere))
    unbound.put(job_queue("hidden"), secret("hidden-operator", database))
    with install(cluster, release) as user:
        process = make_it_do_everything(operated, database, release, namespaces="")
        found = unbound.until("DatabaseReady", "False", "SecretRefused", name="hidden")
        operated.stop()
    assert f"let the operator get Secrets in namespace {elsewhere}" in found["message"]
    entries = cluster.asked(user)
    assert set(refused(entries)) == {(elsewhere, "secrets", "get")}, process.text
    assert "orbidden" not in process.text
    assert used(entries) - granted(release) == set()
    assert granted(release) - used(entries) == APPLIED
