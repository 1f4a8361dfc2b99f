"""Fixtures: a real API server, once per session, and a namespace for each test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from services.custom_resources import Resources
from services.kubernetes import Cluster, control_plane

if TYPE_CHECKING:
    from collections.abc import Iterator

CRDS = Path(__file__).parents[2] / "crds"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """etcd and kube-apiserver with RBAC: `cluster.kubeconfig`, `.request(…)`, `.api()`, `.token_for(name)`."""
    with control_plane() as running:
        yield running


@pytest.fixture(scope="session")
def controllers(cluster: Cluster) -> Cluster:
    """The same control plane with the controllers of owners' garbage, namespaces, Deployments and ReplicaSets."""
    cluster.start_controllers()
    return cluster


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """The name of a namespace of the test's own. Without `controllers` it stays, deleted in part, with the session."""
    name = cluster.create_namespace()
    yield name
    cluster.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="session")
def installed(cluster: Cluster) -> Cluster:
    """The control plane with the CustomResourceDefinitions of crds/."""
    for path in sorted(CRDS.glob("*.yaml")):
        cluster.install(yaml.safe_load(path.read_text()))
    return cluster


@pytest.fixture(scope="session")
def dry(installed: Cluster) -> Resources:
    """For what only asks (`create` does by default): a namespace for each question is a burden to who cleans up."""
    return Resources(installed, "default")


@pytest.fixture
def resources(installed: Cluster, namespace: str) -> Resources:
    """JobQueues and DownstreamCapacities in the test's namespace."""
    return Resources(installed, namespace)
