"""Drawn manifests, in bursts, at a running operator: each is refused or told what became of it, and no other suffers.

JOBQUEUE_MANIFESTS (default 500) manifests.
"""

from __future__ import annotations

import copy
import json
import os
import re
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings

from services.accounts import free_port
from services.drawn_manifests import manifests
from services.kubernetes import Refused
from services.operators import Operated, job_class, job_queue, secret
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from services.custom_resources import Resources
    from services.databases import Database
    from services.kubernetes import Cluster

MANIFESTS = int(os.environ.get("JOBQUEUE_MANIFESTS", "500"))
BURST = 100
KINDS = ("JobQueue", "DownstreamCapacity")
MARK = "drawn=true"
REASON = re.compile("[A-Z][A-Za-z]+")


@pytest.fixture
def operated(controllers: Cluster, resources: Resources) -> Iterator[Operated]:
    made = Operated(controllers, resources)
    forbid_pods(made)
    yield made
    made.stop()


def forbid_pods(operated: Operated) -> None:
    """Some manifests ask for thousands of workers; what is looked at here ends with the Deployment."""
    path = f"/api/v1/namespaces/{operated.namespace}/resourcequotas"
    hard = {"pods": "0"}
    operated.cluster.request("POST", path, {"metadata": {"name": "none"}, "spec": {"hard": hard}})
    counted = {"status": {"hard": hard, "used": hard}}
    operated.cluster.request("PATCH", f"{path}/none/status", counted, content="application/merge-patch+json")


def drawn(count: int) -> list[dict[str, Any]]:
    """Return manifests under names of their own, but for capacities that others may refer to."""
    found: list[dict[str, Any]] = []

    @settings(
        max_examples=count, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(manifests())
    def draw(document: dict[str, Any]) -> None:
        document = copy.deepcopy(document)
        number = len(found)
        name = f"drawn-{number}"
        if document["kind"] == "DownstreamCapacity" and number % 5 < 2:
            name = "ab"[number % 5]
        document["metadata"] = {"name": name, "labels": dict([MARK.split("=")])}
        for spec in named_classes(document) if number % 10 else ():  # one of ten may name a class that another one has
            spec["name"] = f"{spec['name']}-{number}"
        found.append(document)

    draw()
    return found


def named_classes(document: dict[str, Any]) -> list[dict[str, Any]]:
    found = document["spec"].get("classes")
    return [spec for spec in found if isinstance(spec, dict) and spec.get("name")] if isinstance(found, list) else []


def taken(resources: Resources, document: dict[str, Any]) -> bool:
    """Write a manifest, and say whether the server took it."""
    try:
        resources.create(document, dry=False)
    except Refused as refused:
        if refused.status not in {400, 409, 422}:
            raise
        return False
    return True


def untold(resources: Resources) -> list[str]:
    """Return the objects whose status does not say what became of the manifest."""
    return [
        f"{kind} {found['metadata']['name']}: {found.get('status')}"
        for kind in KINDS
        for found in resources.cluster.request("GET", resources.path(kind))["items"]
        if not is_told(found)
    ]


def is_told(found: dict[str, Any]) -> bool:
    status = found.get("status") or {}
    ready = next((c for c in status.get("conditions") or () if c["type"] == "Ready"), None)
    if ready is None or status["observedGeneration"] != found["metadata"]["generation"]:
        return False
    return REASON.fullmatch(ready["reason"]) is not None and bool(ready["message"])


class Neighbour:
    """A JobQueue that is as it should be: its workers come and go with its jobs, and it is Ready all the time."""

    def __init__(self, operated: Operated, database: Database) -> None:
        self._operated, self._database = operated, database
        operated.put(secret("shop-operator", database), secret("shop-worker", database), job_queue("shop", job_class()))
        self._jobs = False

    def ready_since(self) -> str:
        since: str = self._operated.until("Ready", "True")["lastTransitionTime"]
        return since

    def change(self) -> None:
        """Give it a job, or take it away."""
        self._jobs = not self._jobs
        said = (
            "SELECT jobqueue.enqueue('email', 'work', '{}')"
            if self._jobs
            else "SELECT jobqueue.cancel(id) FROM jobqueue.jobs WHERE status = 'pending'"
        )
        with self._database.connect() as connection:
            connection.execute(said)

    def is_scaled(self) -> bool:
        return bool(self._operated.deployment()["spec"]["replicas"] == int(self._jobs))


def write(operated: Operated, neighbour: Neighbour, burst: Sequence[dict[str, Any]]) -> int:
    """Write a burst, see what comes of it, and take it away; return how many the server took."""
    resources = operated.resources
    neighbour.change()
    count = sum(taken(resources, document) for document in burst)
    eventually(neighbour.is_scaled, within=40, what="the neighbour to be scaled")
    try:
        eventually(lambda: not untold(resources), within=40, every=0.2)
    except AssertionError:
        pytest.fail(f"nothing was said of {untold(resources)}")
    for kind in KINDS:
        resources.cluster.request("DELETE", resources.path(kind), labelSelector=MARK)
    return count


@pytest.mark.timeout(300 + MANIFESTS // 5)
def test_each_is_refused_or_told_what_became_of_it_and_a_neighbour_goes_on(
    operated: Operated, database: Database, empty_database: Database
) -> None:
    port = free_port()
    neighbour = Neighbour(operated, database)
    # Some of what is drawn finds a database, some one that does not answer, and some no Secret.
    operated.put(secret("a", empty_database), secret("b", empty_database, port="1"))
    process = operated.start(health_port=str(port), migrate="true", log_format="json")
    since = neighbour.ready_since()
    documents = drawn(MANIFESTS)
    count = 0
    for start in range(0, MANIFESTS, BURST):
        count += write(operated, neighbour, documents[start : start + BURST])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/live") as answer:
            assert json.load(answer)["live"]
        assert process.code is None
    assert count > MANIFESTS / 5, "nothing was tried"
    assert neighbour.ready_since() == since
    assert [line for line in process.lines if json.loads(line)["level"] not in {"info", "warning"}] == []
