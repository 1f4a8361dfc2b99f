"""The Helm chart, rendered without a cluster and without a helm program."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import helm_python
from helm_python import _native

from jobqueue_operator.resources import documents

CHART = Path(__file__).parents[2] / "charts" / "jobqueue-operator"
MONITORING = ("monitoring.coreos.com/v1/ServiceMonitor", "monitoring.coreos.com/v1/PodMonitor")
"""What a cluster knows in which Prometheus Operator runs."""
PATHS = {
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/{plural}/{name}",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/{plural}/{name}",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/{plural}/{name}",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/{plural}/{name}",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies/{name}",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/{plural}/{name}",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/{plural}/{name}",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/{plural}/{name}",
    "Service": "/api/v1/namespaces/{namespace}/{plural}/{name}",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/{plural}/{name}",
}
"""Where an API server has the chart's objects."""
CLUSTER_SCOPED = frozenset({"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"})


@dataclass(frozen=True)
class Release:
    """What one release would put into a cluster. Renderings are shared between tests: look, do not touch."""

    notes: str
    objects: tuple[dict[str, Any], ...]
    """Hooks and CRDs among them."""
    spoken: frozenset[str]
    """The templates that made an object."""

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the objects of these kinds."""
        return [found for found in self.objects if found["kind"] in kinds]

    def one(self, kind: str, name: str | None = None) -> dict[str, Any]:
        """Return the only object of this kind, or the only one of this name."""
        (found,) = [each for each in self.of(kind) if name in {None, each["metadata"]["name"]}]
        return found

    @property
    def pod(self) -> dict[str, Any]:
        """The spec of the operator's pods."""
        spec: dict[str, Any] = self.one("Deployment")["spec"]["template"]["spec"]
        return spec

    @property
    def container(self) -> dict[str, Any]:
        """The operator's container."""
        (found,) = self.pod["containers"]
        assert isinstance(found, dict)
        return found

    @property
    def environment(self) -> dict[str, Any]:
        """The operator's variables: the value, or what it is taken from."""
        return {each["name"]: each.get("value", each.get("valueFrom")) for each in self.container["env"]}


class _Chart(helm_python.Chart):
    """The chart; the library renders for any cluster, what its Python says has no word for that."""

    def manifests(self, values: str, release: dict[str, Any]) -> dict[str, str]:
        rendered = _native.call_string("helm_render", self._raw(), values, json.dumps(release))
        manifests: dict[str, str] = json.loads(rendered)
        return manifests


def render(
    values: dict[str, Any] | None = None,
    *,
    name: str = "jq",
    namespace: str = "ops",
    knows: tuple[str, ...] = MONITORING,
) -> Release:
    """Render the chart. `knows`: kinds of the cluster beside Kubernetes's own, as `group/version/Kind`.

    helm_python.HelmValuesError when the schema refuses the values, HelmRenderError when a template does.
    """
    return _render(json.dumps(values or {}, sort_keys=True), name, namespace, knows)


def path_of(found: dict[str, Any]) -> str:
    """Return where an API server has this object."""
    metadata = found["metadata"]
    plural = f"{found['kind'].lower()}s"
    return PATHS[found["kind"]].format(plural=plural, name=metadata["name"], namespace=metadata.get("namespace"))


@functools.cache
def _chart() -> _Chart:
    chart = _Chart.load(CHART)
    assert isinstance(chart, _Chart)
    return chart


@functools.cache
def _render(values: str, name: str, namespace: str, knows: tuple[str, ...]) -> Release:
    release = {"name": name, "namespace": namespace, "api_versions": list(knows)}
    manifests = _chart().manifests(values, release)
    notes = next(text for path, text in manifests.items() if path.endswith("NOTES.txt"))
    found = {path: _objects(text) for path, text in sorted(manifests.items()) if path.endswith(".yaml")}
    return Release(
        notes=notes,
        objects=tuple(each for objects in found.values() for each in objects),
        spoken=frozenset(path for path, objects in found.items() if objects),
    )


@functools.cache
def _objects(text: str) -> list[dict[str, Any]]:
    # Read as manifests are: a key that a template writes twice is an error here, as it is for the API server.
    return documents.read(text)
