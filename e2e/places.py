"""Where one scenario happens: a namespace, a database, an operator that serves this namespace alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import helm_python
from e2e.clusters import eventually

if TYPE_CHECKING:
    from e2e.clusters import Kubectl
    from e2e.databases import Database
    from e2e.images import Images

CHART = Path(__file__).parents[1] / "charts" / "jobqueue-operator"
RELEASE = "jq"
OPERATOR = "deployment/jq-jobqueue-operator"
_HELM = 180


def job_class(name: str = "work", **fields: Any) -> dict[str, Any]:
    """Return a class as a user writes it."""
    replicas = {"min": 0, "max": 4, "idleAfter": "5s", **fields.pop("replicas", {})}
    return {"name": name, "timeout": "30s", "concurrency": 2, "replicas": replicas, **fields}


@dataclass
class Place:
    """One scenario's."""

    kubectl: Kubectl
    database: Database
    images: Images

    @property
    def namespace(self) -> str:
        """Its name."""
        return self.kubectl.namespace

    def install(self) -> None:
        """Install the operator, and wait until it is ready."""
        with self._helm() as helm:
            helm.install(str(CHART), RELEASE, self._values(), namespace=self.namespace, wait="watcher", timeout=_HELM)

    def upgrade(self, **values: Any) -> None:
        """Upgrade the operator to other values, and wait until it is ready."""
        with self._helm() as helm:
            given = self._values() | values
            helm.upgrade(str(CHART), RELEASE, given, namespace=self.namespace, wait="watcher", timeout=_HELM)

    def uninstall(self) -> None:
        """Take the operator away."""
        with self._helm() as helm:
            helm.uninstall(RELEASE, wait="watcher", timeout=_HELM)

    def test(self) -> None:
        """Run the chart's own test."""
        with self._helm() as helm:
            helm.test(RELEASE, timeout=_HELM)

    def put(self, *classes: dict[str, Any], **spec: Any) -> None:
        """Apply the JobQueue `shop` with these classes, and the Secrets it names."""
        logins = {f"{role}SecretRef": {"name": f"shop-{role}"} for role in ("worker", "operator")}
        self.kubectl.apply(
            *(self.database.secret(f"shop-{role}", role) for role in ("worker", "operator")),
            {
                "apiVersion": "jobqueue.dev/v1alpha1",
                "kind": "JobQueue",
                "metadata": {"name": "shop"},
                "spec": {
                    "database": logins,
                    "image": self.images.worker,
                    "app": "jobs:app",
                    "classes": list(classes) or [job_class()],
                    **spec,
                },
            },
        )

    def until_ready(self) -> None:
        """Wait until the operator has carried out what is asked for now."""
        eventually(self._is_ready, within=60, what="the JobQueue to be ready")

    def _is_ready(self) -> bool:
        found = self.kubectl.get("jobqueue", "shop")
        ready = [c for c in found.get("status", {}).get("conditions", ()) if c["type"] == "Ready"]
        generation = found["metadata"]["generation"]
        return any(c["status"] == "True" and c["observedGeneration"] == generation for c in ready)

    def enqueue(self, kind: str, seconds: float, count: int = 1) -> None:
        """Enqueue jobs of the class `work`."""
        asked = (
            "SELECT jobqueue.enqueue('work', %s, jsonb_build_object('seconds', %s::float)) FROM generate_series(1, %s)"
        )
        with self.database.connect() as connection:
            connection.execute(asked, [kind, seconds, count])

    def rows(self, asked: str) -> list[Any]:
        """Return what the database answers."""
        with self.database.connect() as connection:
            return connection.execute(asked).fetchall()

    def jobs(self) -> dict[str, int]:
        """Return how many jobs there are, by status."""
        return dict(self.rows("SELECT status, count(*) FROM jobqueue.jobs GROUP BY 1"))

    def attempts(self) -> dict[int, int]:
        """Return how many jobs there are, by the attempts they took."""
        return dict(self.rows("SELECT attempts, count(*) FROM jobqueue.jobs GROUP BY 1"))

    def until_done(self, count: int, *, within: float = 180) -> None:
        """Wait until all jobs are done, and that is so many."""
        eventually(lambda: self.jobs() == {"done": count}, within=within, what=f"{count} jobs to be done")

    def calling(self) -> list[str]:
        """Return the workers that are in the middle of a `call`."""
        return [worker for (worker,) in self.rows("SELECT worker FROM call WHERE ended IS NULL")]

    def until_calling(self, workers: int) -> list[str]:
        """Wait until at least so many workers are in the middle of a `call`; return them."""

        def busy() -> list[str]:
            found = sorted(set(self.calling()))
            return found if len(found) >= workers else []

        return eventually(busy, within=120, what=f"{workers} workers to be busy")

    def pods(self) -> dict[str, dict[str, Any]]:
        """Return the worker pods, by name."""
        found = self.kubectl.items("pods", "--selector=jobqueue.dev/queue=shop")
        return {pod["metadata"]["name"]: pod for pod in found}

    def until_pods(self, count: int, *, within: float = 120) -> dict[str, dict[str, Any]]:
        """Wait until there are so many worker pods, all ready and none leaving; return them."""

        def there() -> tuple[dict[str, dict[str, Any]]] | None:
            found = self.pods()
            return (found,) if len(found) == count and all(_is_ready(pod) for pod in found.values()) else None

        return eventually(there, within=within, what=f"{count} worker pods to be there")[0]

    def describe(self) -> str:
        """Return what one wants to see of a scenario that failed."""
        told = [
            self.kubectl("get", "jobqueues,downstreamcapacities,all", "--output=wide", check=False),
            self.kubectl("get", "jobqueues", "--output=yaml", check=False),
            self.kubectl("get", "events", "--sort-by=.lastTimestamp", check=False),
            self.kubectl("logs", OPERATOR, "--tail=200", check=False),
            self.kubectl("logs", "--selector=jobqueue.dev/queue=shop", "--tail=30", "--prefix", check=False),
        ]
        return "\n".join(told)

    def _helm(self) -> helm_python.Config:
        return helm_python.Config(kubeconfig_path=self.kubectl.kubeconfig, namespace=self.namespace)

    def _values(self) -> dict[str, Any]:
        repository, _, tag = self.images.operator.rpartition(":")
        return {
            "image": {"repository": repository, "tag": tag},
            "namespaces": [self.namespace],
            "crds": {"enabled": False},
        }


def _is_ready(pod: dict[str, Any]) -> bool:
    ready = [c["status"] for c in pod.get("status", {}).get("conditions", ()) if c["type"] == "Ready"]
    return ready == ["True"] and "deletionTimestamp" not in pod["metadata"]
