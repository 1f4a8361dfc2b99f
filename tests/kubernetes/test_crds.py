"""The CustomResourceDefinitions on a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from jobqueue_operator.manifest import parse_manifests
from services.kubernetes import Refused

if TYPE_CHECKING:
    from services.kubernetes import Cluster

ROOT = Path(__file__).parents[2]
FULL = ROOT / "tests" / "unit" / "resources" / "full.yaml"
LEAST = """
apiVersion: jobqueue.dev/v1alpha1
kind: JobQueue
metadata: {name: shop}
spec:
  database: {workerSecretRef: {name: w}, operatorSecretRef: {name: o}}
  image: registry.example/shop-worker:1
  app: shop.jobs:app
  classes: [{name: email, timeout: 30s}]
---
apiVersion: jobqueue.dev/v1alpha1
kind: DownstreamCapacity
metadata: {name: orders-db}
spec: {units: 40}
"""
NULLS = """
apiVersion: jobqueue.dev/v1alpha1
kind: JobQueue
metadata: {name: shop}
spec:
  database: {workerSecretRef: {name: w}, operatorSecretRef: {name: o}, listenSecretRef: null, schema: null}
  wakeup: null
  image: registry.example/shop-worker:1
  app: shop.jobs:app
  classes:
  - {name: email, timeout: 30s, lease: null, capacity: null, schedule: null, replicas: {min: null, pin: null}}
"""
PARTLY = """
apiVersion: jobqueue.dev/v1alpha1
kind: JobQueue
metadata: {name: shop}
spec:
  database: {workerSecretRef: {name: w}, operatorSecretRef: {name: o}}
  image: registry.example/shop-worker:1
  app: shop.jobs:app
  wakeup: {}
  classes:
  - {name: email, timeout: 30s, replicas: {min: 30}, retry: {backoff: {max: 1h}}, drain: {}, podTemplate: {spec: {}}}
  - {name: mail, timeout: 1m30s, replicas: {max: 2}, retry: {maxAttempts: 3}, lease: {heartbeat: 1s}}
"""


def by_document(text: str) -> list[Any]:
    return [pytest.param(each, id=each["kind"]) for each in yaml.safe_load_all(text) if each]


@pytest.fixture(scope="session")
def definitions(installed: Cluster) -> list[Any]:
    return [
        installed.request("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{path.stem}.jobqueue.dev")
        for path in sorted((ROOT / "crds").glob("*.yaml"))
    ]


def test_they_are_established_and_structural(definitions: list[Any]) -> None:
    assert len(definitions) == 2
    for definition in definitions:
        conditions = {each["type"]: each["status"] for each in definition["status"]["conditions"]}
        assert conditions == {"NamesAccepted": "True", "Established": "True"}, "no NonStructuralSchema"
        (version,) = definition["spec"]["versions"]
        assert version["subresources"] == {"status": {}}


def test_nothing_that_was_written_was_dropped(definitions: list[Any]) -> None:
    for definition in definitions:
        name = definition["spec"]["names"]["plural"]
        written = yaml.safe_load((ROOT / "crds" / f"{name}.yaml").read_text())
        assert definition["spec"]["versions"][0]["schema"] == written["spec"]["versions"][0]["schema"]


def test_names(installed: Cluster, definitions: list[Any]) -> None:
    assert [d["status"]["acceptedNames"]["shortNames"] for d in definitions] == [["dsc"], ["jq"]]
    found = installed.request("GET", "/apis/jobqueue.dev/v1alpha1")["resources"]
    assert {each["name"]: each.get("categories") for each in found} == {
        "jobqueues": ["jobqueues"],
        "jobqueues/status": None,
        "downstreamcapacities": ["jobqueues"],
        "downstreamcapacities/status": None,
    }


@pytest.mark.parametrize("document", [*by_document(LEAST), *by_document(NULLS), *by_document(PARTLY)])
def test_the_servers_defaults_are_the_models(dry: Any, document: dict[str, Any]) -> None:
    filled = dry.create(document)
    (mine,) = parse_manifests(yaml.safe_dump(document))
    (theirs,) = parse_manifests(yaml.safe_dump({**document, "spec": filled["spec"]}))
    assert theirs == mine
    assert len(yaml.safe_dump(filled["spec"])) > len(yaml.safe_dump(document["spec"])), "nothing was filled in"
    written = mine.model_dump(by_alias=True, mode="json", exclude_none=True)["spec"]
    assert not_in(filled["spec"], written) == []


def not_in(filled: Any, written: Any, path: str = "") -> list[str]:
    """What a server filled in and the model does not say likewise."""
    if isinstance(filled, dict):
        return [w for key, value in filled.items() for w in not_in(value, written.get(key, ...), f"{path}.{key}")]
    if isinstance(filled, list):
        return [w for n, each in enumerate(filled) for w in not_in(each, written[n], f"{path}[{n}]")]
    return [] if filled == written else [f"{path}: {filled!r} is {written!r}"]


@pytest.mark.parametrize("document", by_document(FULL.read_text()))
def test_the_full_example_is_kept_as_written(dry: Any, document: dict[str, Any]) -> None:
    filled = dry.create(document)["spec"]
    assert lost(document["spec"], filled) == []


def lost(written: Any, kept: Any, path: str = "") -> list[str]:
    if isinstance(written, dict):
        return [w for key, value in written.items() for w in lost(value, kept.get(key, ...), f"{path}.{key}")]
    if isinstance(written, list):
        return [w for n, each in enumerate(written) for w in lost(each, kept[n], f"{path}[{n}]")]
    return [] if written == kept else [f"{path}: {written!r} became {kept!r}"]


def test_an_unknown_field_is_refused_by_name(dry: Any) -> None:
    document = next(yaml.safe_load_all(LEAST))
    document["spec"]["classes"][0]["timout"] = "3s"
    with pytest.raises(Refused, match=r'unknown field "spec.classes\[0\].timout"'):
        dry.create(document)


def test_status_is_kept_apart_and_shown_in_columns(resources: Any) -> None:
    job_queue, downstream = yaml.safe_load_all(LEAST)
    made = resources.create(job_queue | {"status": {"replicas": 9}}, dry=False)
    assert "status" not in made
    at = {"lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 1, "message": "as asked"}
    resources.set_status(
        "JobQueue",
        "shop",
        {
            "observedGeneration": 1,
            "conditions": [{"type": "Ready", "status": "True", "reason": "AsAsked", **at}],
            "reason": "Demand",
            "oldestMessageAge": "12s",
            "replicas": 7,
            "readyJobs": 120,
            "inFlightJobs": 64,
            "deadJobs": 2,
            "classes": [{"name": "email", "desiredReplicas": 8, "scheduledJobs": 1, "message": "5 more to catch up"}],
        },
    )
    after = resources.get("JobQueue", "shop")
    assert after["metadata"]["generation"] == 1, "a status changes no generation"
    assert after["status"]["classes"][0]["desiredReplicas"] == 8
    columns, cells = resources.table("JobQueue")
    assert columns == ["Name", "Ready", "Oldest", "Ready Jobs", "In Flight", "Dead", "Replicas", "Reason", "Age"]
    assert cells[:-1] == ["shop", "True", "12s", 120, 64, 2, 7, "Demand"]

    resources.create(downstream, dry=False)
    resources.set_status(
        "DownstreamCapacity",
        "orders-db",
        {
            "observedGeneration": 1,
            "conditions": [{"type": "Saturated", "status": "False", "reason": "BelowLimit", **at}],
            "units": 40,
            "limit": 32,
            "inUse": 30,
            "allocations": [
                {"jobQueue": "shop/shop", "class": "email", "allocated": 30, "asked": 40, "heldBackBy": ["limit"]}
            ],
        },
    )
    columns, cells = resources.table("DownstreamCapacity")
    assert columns == ["Name", "Ready", "Units", "Limit", "In Use", "Saturated", "Age"]
    assert cells[:-1] == ["orders-db", None, 40, 32, 30, "False"]


def test_two_managers_share_the_conditions(resources: Any) -> None:
    document = next(yaml.safe_load_all(LEAST))
    resources.create(document, dry=False)
    at = {"lastTransitionTime": "2026-01-02T03:04:05Z", "reason": "Checked", "message": "", "status": "True"}
    for manager, kind in (("operator", "Ready"), ("policy", "Approved")):
        resources.apply_status("JobQueue", "shop", {"conditions": [{"type": kind, **at}]}, manager=manager)
    kept = resources.get("JobQueue", "shop")["status"]["conditions"]
    assert {each["type"] for each in kept} == {"Ready", "Approved"}
