"""The Helm chart in a real API server: what is installed, upgraded, kept, and who may do what."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import helm_python
import pytest
import yaml

from services.helm import CHART, PATHS, Release, path_of, render
from services.kubernetes import Cluster, Refused, control_plane
from services.operators import job_queue
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUEUE = job_queue("shop", {"name": "email", "timeout": "30s"})
WITHOUT_CRDS: dict[str, Any] = {"crds": {"enabled": False}}


@pytest.fixture(scope="module")
def bare() -> Iterator[Cluster]:
    """A control plane of this module's own: the CRDs in it are Helm's, and no other test's."""
    with control_plane() as running:
        yield running


@pytest.fixture
def ops(bare: Cluster) -> str:
    """The operator's namespace."""
    return bare.create_namespace()


@pytest.fixture
def shop(bare: Cluster) -> str:
    """A namespace with JobQueues."""
    return bare.create_namespace()


@pytest.fixture
def helm(bare: Cluster, ops: str) -> Iterator[helm_python.Config]:
    with helm_python.Config(kubeconfig_path=bare.kubeconfig, namespace=ops) as config:
        yield config
        config.uninstall("jq", ignore_not_found=True)


def is_there(cluster: Cluster, path: str) -> bool:
    """Say whether it exists and is not on its way out: a deleted CRD answers until its objects are gone."""
    try:
        found = cluster.request("GET", path)
    except Refused as refused:
        if refused.status == 404:
            return False
        raise
    return "deletionTimestamp" not in found["metadata"]


def installed(release: Release) -> list[dict[str, Any]]:
    """Return what an installation makes; the pod is for `helm test`."""
    return [each for each in release.objects if each["kind"] != "Pod"]


def missing(cluster: Cluster, release: Release) -> set[str]:
    return {path for each in installed(release) if not is_there(cluster, path := path_of(each))}


def full(shop: str) -> dict[str, Any]:
    """Values with which every object of cluster mode is made."""
    return {
        "replicas": 2,
        "secrets": {"namespaces": [shop]},
        "networkPolicy": {"enabled": True, "ingressFrom": [{"podSelector": {}}]},
        "workers": {"networkPolicy": True},
    }


def older(folder: Path) -> Path:
    """Return a copy of the chart as an earlier release may have been: DownstreamCapacity has no short name."""
    shutil.copytree(CHART, folder / CHART.name)
    definition = folder / CHART.name / "templates" / "crds" / "downstreamcapacities.yaml"
    text = definition.read_text()
    assert "    shortNames:\n    - dsc\n" in text
    definition.write_text(text.replace("    shortNames:\n    - dsc\n", ""))
    return folder / CHART.name


def test_install_upgrade_uninstall_and_install_again(
    bare: Cluster, helm: helm_python.Config, ops: str, shop: str, tmp_path: Path
) -> None:
    definition = PATHS["CustomResourceDefinition"].format(
        plural="customresourcedefinitions", name="downstreamcapacities.jobqueue.dev"
    )
    queue = f"/apis/jobqueue.dev/v1alpha1/namespaces/{shop}/jobqueues"

    assert helm.install(older(tmp_path), "jq")["status"] == "deployed"
    assert missing(bare, render(namespace=ops, knows=())) == set()
    assert "shortNames" not in bare.request("GET", definition)["spec"]["names"]
    eventually(lambda: is_there(bare, queue), within=10, what="JobQueues to be served")
    bare.request("POST", queue, QUEUE)

    assert helm.upgrade(CHART, "jq", full(shop))["revision"] == 2
    release = render(full(shop), namespace=ops, knows=())
    assert missing(bare, release) == set()
    assert bare.request("GET", definition)["spec"]["names"]["shortNames"] == ["dsc"]
    deployment = bare.request("GET", f"/apis/apps/v1/namespaces/{ops}/deployments/jq-jobqueue-operator")
    assert deployment["spec"]["replicas"] == 2

    helm.uninstall("jq")
    kept = {path_of(each) for each in release.of("CustomResourceDefinition")}
    assert missing(bare, release) == {path_of(each) for each in installed(release)} - kept
    assert is_there(bare, f"{queue}/shop")

    assert helm.install(CHART, "jq")["status"] == "deployed"
    assert is_there(bare, f"{queue}/shop")


def allowed(cluster: Cluster, ops: str, namespace: str, verb: str, resource: str) -> bool:
    """Ask the API server whether the operator's ServiceAccount may do this."""
    group, _, plural = resource.rpartition("/")
    review = {
        "spec": {
            "user": f"system:serviceaccount:{ops}:jq-jobqueue-operator",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": {"namespace": namespace, "verb": verb, "group": group, "resource": plural},
        }
    }
    answer = cluster.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def test_secrets_are_got_where_the_values_say_and_listed_nowhere(
    bare: Cluster, helm: helm_python.Config, ops: str, shop: str
) -> None:
    helm.install(CHART, "jq", {**WITHOUT_CRDS, "secrets": {"namespaces": [shop]}})
    assert allowed(bare, ops, shop, "get", "secrets")
    assert not allowed(bare, ops, shop, "list", "secrets")
    assert not allowed(bare, ops, ops, "get", "secrets")
    assert allowed(bare, ops, "default", "list", "jobqueue.dev/jobqueues")
    assert not allowed(bare, ops, shop, "update", "jobqueue.dev/jobqueues")


def test_who_rules_some_namespaces_installs_for_them(bare: Cluster, ops: str, shop: str) -> None:
    for namespace in (ops, shop):
        bare.request(
            "POST",
            f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
            {
                "metadata": {"name": "ruler"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": ops}],
            },
        )
    login = yaml.safe_load(bare.kubeconfig.read_text())
    login["users"][0]["user"]["token"] = bare.token_for("default", ops)
    with helm_python.Config(kubeconfig_content=yaml.safe_dump(login), namespace=ops) as theirs:
        with pytest.raises(helm_python.HelmReleaseError, match=r"cannot .* at the cluster scope"):
            theirs.install(CHART, "cluster-mode", WITHOUT_CRDS)
        assert theirs.install(CHART, "jq", {**WITHOUT_CRDS, "namespaces": [shop]})["status"] == "deployed"
        assert allowed(bare, ops, shop, "get", "secrets")
        assert allowed(bare, ops, shop, "list", "jobqueue.dev/jobqueues")
        assert not allowed(bare, ops, ops, "get", "secrets")
        assert not allowed(bare, ops, "default", "list", "jobqueue.dev/jobqueues")
        theirs.uninstall("jq")


def test_a_namespace_that_enforces_the_restricted_profile_admits_the_pods(bare: Cluster, ops: str) -> None:
    path = f"/api/v1/namespaces/{ops}"
    enforce = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    bare.request("PATCH", path, enforce, content="application/merge-patch+json")
    release = render(full(ops), namespace=ops)
    for spec in (release.pod, release.one("Pod")["spec"]):
        pod = {"metadata": {"name": "one"}, "spec": {**spec, "serviceAccountName": "default"}}
        bare.request("POST", f"{path}/pods", pod, dryRun="All", fieldValidation="Strict")
    pod["spec"] = {**spec, "securityContext": {}}
    with pytest.raises(Refused, match="restricted"):
        bare.request("POST", f"{path}/pods", pod, dryRun="All")
