"""A rollout whose new pods do not understand what is queued, with the real controllers. Pods are said to be ready."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from jobqueue import queue
from services.operators import Operated, job_class, job_queue, secret
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from services.custom_resources import Resources
    from services.databases import Database
    from services.kubernetes import Cluster

OLD, NEW = "example/shop:1", "example/shop:2"


class Fleet:
    """The pods of class email, and what the app in each image understands."""

    def __init__(self, operated: Operated, database: Database) -> None:
        self.operated, self.database = operated, database
        self.understood = {OLD: [("render", 1)], NEW: [("render", 1), ("mail", 1)]}
        self._registered: set[str] = set()
        with database.connect() as connection:
            queue.set_class(connection, None, "email", {})
            self.job = queue.enqueue(connection, "email", "render", {}, run_after=datetime(2099, 1, 1, tzinfo=UTC)).id

    def put(self, image: str, **fields: Any) -> None:
        self.operated.put(job_queue("shop", job_class(replicas={"min": 2, "max": 2}, **fields), image=image))

    def images(self) -> list[str]:
        """Have every pod up, as a kubelet and its worker would; return the images, sorted."""
        found = []
        for pod in self.operated.pods("email"):
            if "deletionTimestamp" in pod["metadata"]:
                continue
            name, image = pod["metadata"]["name"], pod["spec"]["containers"][0]["image"]
            found.append(image)
            if name not in self._registered:
                self._registered.add(name)
                self._come_up(name, image)
        with self.database.connect() as connection:
            connection.execute("UPDATE jobqueue.worker SET seen_at = clock_timestamp()")
        return sorted(found)

    def until(self, *images: str, also: Callable[[], object] = lambda: True) -> None:
        eventually(lambda: self.images() == sorted(images) and also(), within=40, what=f"pods of {images}")

    def delete_pod(self, image: str) -> None:
        path = f"/api/v1/namespaces/{self.operated.namespace}/pods"
        for pod in self.operated.pods("email"):
            if pod["spec"]["containers"][0]["image"] == image:
                self.operated.cluster.request("DELETE", f"{path}/{pod['metadata']['name']}")

    def spec(self) -> Any:
        return self.operated.deployment()["spec"]

    def _come_up(self, name: str, image: str) -> None:
        with self.database.connect() as connection:
            queue.register_worker(connection, name, "email", self.understood[image], slots=2)
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        self.operated.cluster.request(
            "PATCH",
            f"/api/v1/namespaces/{self.operated.namespace}/pods/{name}/status",
            {"status": {"phase": "Running", "conditions": [ready]}},
            content="application/strategic-merge-patch+json",
        )


@pytest.fixture
def fleet(controllers: Cluster, resources: Resources, database: Database) -> Iterator[Fleet]:
    """Two pods of the old image, up, an operator, and a job for later that the old image understands."""
    operated = Operated(controllers, resources)
    made = Fleet(operated, database)
    operated.put(secret("shop-operator", database), secret("shop-worker", database))
    made.put(OLD)
    operated.start()
    operated.until("Ready", "True")
    made.until(OLD, OLD)
    yield made
    operated.stop()


def test_the_last_pod_that_understands_what_is_queued_stays_until_that_is_gone(
    fleet: Fleet, database: Database
) -> None:
    operated = fleet.operated
    fleet.understood[NEW] = [("mail", 1)]
    fleet.put(NEW)
    fleet.until(OLD, NEW, NEW, also=lambda: operated.condition("RolloutHeld").get("status") == "True")
    found = operated.condition("RolloutHeld")
    assert found["reason"] == "OldVersionQueued"
    assert "(1 of render version 1)" in found["message"]
    eventually(lambda: "OldVersionQueued" in operated.events(), within=10)

    # Neither another operator's beginning nor the pod's deletion ends it.
    operated.stop()
    fleet.delete_pod(OLD)
    fleet.until(OLD, NEW, NEW)
    before = operated.deployment()["metadata"]["generation"]
    operated.start()
    eventually(lambda: fleet.images() and operated.condition("RolloutHeld")["message"] != found["message"], within=40)
    fleet.until(OLD, NEW, NEW)
    assert operated.deployment()["metadata"]["generation"] == before

    with database.connect() as connection:
        queue.cancel(connection, fleet.job)
    fleet.until(NEW, NEW, also=lambda: operated.condition("RolloutHeld")["status"] == "False")
    eventually(lambda: "minReadySeconds" not in fleet.spec(), within=10)
    assert fleet.spec()["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_new_pods_that_understand_all_of_it_replace_the_old_ones(fleet: Fleet) -> None:
    fleet.put(NEW)
    eventually(lambda: fleet.spec()["template"]["spec"]["containers"][0]["image"] == NEW, within=10)
    assert fleet.spec()["minReadySeconds"] > 0, "nothing old goes before it is known what the new pods understand"
    fleet.until(NEW, NEW)
    assert "minReadySeconds" not in fleet.spec()
    assert not fleet.operated.condition("RolloutHeld")
