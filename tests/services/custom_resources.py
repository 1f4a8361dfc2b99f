"""JobQueues and DownstreamCapacities in one namespace of a test's cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from services.kubernetes import Cluster

_PLURALS = {"JobQueue": "jobqueues", "DownstreamCapacity": "downstreamcapacities"}
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_PATCH = "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class Resources:
    """What a user and an operator do with them. Unknown fields are refused, as by kubectl."""

    cluster: Cluster
    namespace: str

    def path(self, kind: str, name: str = "") -> str:
        """Where a kind, or one object of it, is."""
        base = f"/apis/jobqueue.dev/v1alpha1/namespaces/{self.namespace}/{_PLURALS[kind]}"
        return f"{base}/{name}" if name else base

    def create(self, document: dict[str, Any], *, dry: bool = True) -> Any:
        """Create, or only ask whether it could be; returns the object with its defaults. Refused otherwise."""
        query = {"dryRun": "All"} if dry else {}
        return self.cluster.request("POST", self.path(document["kind"]), document, fieldValidation="Strict", **query)

    def get(self, kind: str, name: str) -> Any:
        return self.cluster.request("GET", self.path(kind, name))

    def change(self, kind: str, name: str, spec: dict[str, Any]) -> Any:
        """Merge into a spec."""
        return self.cluster.request(
            "PATCH", self.path(kind, name), {"spec": spec}, content=_PATCH, fieldValidation="Strict"
        )

    def set_status(self, kind: str, name: str, status: dict[str, Any]) -> Any:
        """Merge into a status."""
        path = f"{self.path(kind, name)}/status"
        return self.cluster.request("PATCH", path, {"status": status}, content=_PATCH, fieldValidation="Strict")

    def apply_status(self, kind: str, name: str, status: dict[str, Any], *, manager: str) -> Any:
        """Apply a status on the server's side."""
        document = {"apiVersion": "jobqueue.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "status": status}
        return self.cluster.apply(f"{self.path(kind, name)}/status", document, manager=manager)

    def table(self, kind: str) -> tuple[list[str], list[Any]]:
        """What `kubectl get` shows: the names of the columns, and the cells of the first row."""
        found = self.cluster.request("GET", self.path(kind), accept=_TABLE)
        shown = [column for column in found["columnDefinitions"] if column["priority"] == 0]
        return [column["name"] for column in shown], found["rows"][0]["cells"][: len(shown)]
