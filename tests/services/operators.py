"""The operator as a process of its own, against a control plane of the tests', and what it looks after."""

from __future__ import annotations

import base64
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg.conninfo

from services.accounts import free_port
from services.kubernetes import Refused
from services.processes import Process
from services.waiting import eventually

if TYPE_CHECKING:
    from services.custom_resources import Resources
    from services.databases import Database
    from services.kubernetes import Cluster


def job_queue(name: str = "shop", *classes: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a JobQueue as a user writes it."""
    return {
        "apiVersion": "jobqueue.dev/v1alpha1",
        "kind": "JobQueue",
        "metadata": {"name": name},
        "spec": {
            "database": {
                "workerSecretRef": {"name": f"{name}-worker"},
                "operatorSecretRef": {"name": f"{name}-operator"},
            },
            "image": "example/shop:1",
            "app": "shop.jobs:app",
            "classes": list(classes) or [job_class()],
            **spec,
        },
    }


def job_class(name: str = "email", **fields: Any) -> dict[str, Any]:
    """Return a class as a user writes it."""
    return {
        "name": name,
        "timeout": "5s",
        "concurrency": 2,
        "replicas": {"min": 0, "max": 10, "idleAfter": "2s"},
        **fields,
    }


def downstream(name: str, **spec: Any) -> dict[str, Any]:
    """Return a DownstreamCapacity as a user writes it."""
    return {
        "apiVersion": "jobqueue.dev/v1alpha1",
        "kind": "DownstreamCapacity",
        "metadata": {"name": name},
        "spec": spec,
    }


def secret(name: str, database: Database, **other: str) -> dict[str, Any]:
    """Return a Secret with a database's login."""
    found = psycopg.conninfo.conninfo_to_dict(database.direct)
    values = {key: str(found[key]) for key in ("host", "port", "dbname", "user") if key in found} | other
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}


@dataclass(slots=True)
class Operated:
    """A namespace that an operator looks after."""

    cluster: Cluster
    resources: Resources
    processes: list[Process] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        return self.resources.namespace

    def start(self, *, token: str | None = None, **settings: str) -> Process:
        """Start an operator for this namespace alone. `settings`: JOBQUEUE_OPERATOR_… by their ends."""
        port = free_port()
        given = {
            "namespaces": self.namespace,
            "standalone": "true",
            "kubeconfig": str(self.cluster.kubeconfig if token is None else self.cluster.kubeconfig_of(token)),
            "tick": "1",
            "health_port": str(port),
            "allow_hosts": "127.0.0.1",
            "log_format": "console",
            **settings,
        }
        env = {f"JOBQUEUE_OPERATOR_{name.upper()}": value for name, value in given.items()}
        process = Process(sys.executable, "-m", "jobqueue_operator.cluster.main", env=env)
        self.processes.append(process)
        return process

    def stop(self) -> None:
        for process in self.processes:
            process.close()

    def put(self, *documents: dict[str, Any]) -> None:
        """Create or change objects."""
        for document in documents:
            kind, name = document["kind"], document["metadata"]["name"]
            path = (
                f"/api/v1/namespaces/{self.namespace}/secrets/{name}"
                if kind == "Secret"
                else self.resources.path(kind, name)
            )
            self.cluster.apply(path, document, manager="user")

    def object(self, group: str, plural: str, name: str) -> Any:
        """Return an object, or None."""
        try:
            return self.cluster.request("GET", f"{group}/namespaces/{self.namespace}/{plural}/{name}")
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def events(self) -> dict[str, str]:
        """Return the events of the namespace: reason to text."""
        found = self.cluster.request("GET", f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        return {event["reason"]: event.get("note", "") for event in found["items"]}

    def notes(self, reason: str) -> int:
        """Return how many events of the namespace have this reason."""
        found = self.cluster.request("GET", f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        return sum(event["reason"] == reason for event in found["items"])

    def deployment(self, name: str = "shop-email") -> Any:
        return self.object("/apis/apps/v1", "deployments", name)

    def pods(self, class_: str) -> list[Any]:
        """Return a class's pods."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        found: list[Any] = self.cluster.request("GET", path, labelSelector=f"jobqueue.dev/class={class_}")["items"]
        return found

    def status(self, name: str = "shop", kind: str = "JobQueue") -> dict[str, Any]:
        found: dict[str, Any] = self.resources.get(kind, name).get("status") or {}
        return found

    def condition(self, type_: str, name: str = "shop", kind: str = "JobQueue") -> dict[str, Any]:
        """Return a condition, empty when it is not there."""
        return next((c for c in self.status(name, kind).get("conditions", ()) if c["type"] == type_), {})

    def until(
        self, type_: str, status: str, reason: str | None = None, *, name: str = "shop", kind: str = "JobQueue"
    ) -> dict[str, Any]:
        """Wait for a condition, and return it."""

        def there() -> dict[str, Any] | None:
            found = self.condition(type_, name, kind)
            fits = found.get("status") == status and (reason is None or found.get("reason") == reason)
            return found if fits else None

        found: dict[str, Any] = eventually(there, within=40, what=f"{type_} to be {status} for {reason}")
        return found
