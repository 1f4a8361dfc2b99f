"""The operator comes, serves, changes and goes."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest
from e2e.clusters import eventually
from e2e.places import OPERATOR, job_class

if TYPE_CHECKING:
    from e2e.places import Place

COLUMNS = ["NAME", "READY", "OLDEST", "READY JOBS", "IN FLIGHT", "DEAD", "REPLICAS", "REASON", "AGE"]


def columns(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def test_install(empty_place: Place) -> None:
    empty_place.install()
    found = empty_place.kubectl.get(OPERATOR)
    assert found["status"]["readyReplicas"] == 1
    said = empty_place.kubectl("logs", OPERATOR)
    assert "holding Lease" in eventually(lambda: said, within=30, what="a word of the operator")
    assert not [line for line in said.splitlines() if '"level": "error"' in line or "Forbidden" in line]


def test_the_charts_own_test(place: Place) -> None:
    if not place.kubectl.items("pods", "--namespace=kube-system", "--selector=k8s-app=kube-dns"):
        pytest.skip("this cluster has no name server, by which the chart's test finds the operator")
    place.test()


def test_apply(place: Place) -> None:
    place.put()
    place.until_ready()
    header, row = place.kubectl("get", "jobqueues").splitlines()
    assert columns(header) == COLUMNS
    assert columns(row)[:2] == ["jobqueue.jobqueue.dev/shop", "True"]  # by the category, which is called so too
    assert place.kubectl("get", "jq", "--output=name") == "jobqueue.jobqueue.dev/shop\n"
    assert place.pods() == {}
    found = place.kubectl.get("deployment", "shop-work")
    assert found["spec"]["replicas"] == 0
    assert place.kubectl.get("poddisruptionbudget", "shop-work")["spec"]["maxUnavailable"] == 1
    assert "finalizers" not in place.kubectl.get("jobqueue", "shop")["metadata"]


def test_uninstall(place: Place) -> None:
    place.put(job_class(replicas={"pin": 1}))
    (before,) = place.until_pods(1)
    place.enqueue("call", 10)
    place.until_calling(1)
    place.uninstall()
    assert place.kubectl.get(OPERATOR) is None
    place.enqueue("call", 0.1)
    place.until_done(2)
    assert place.attempts() == {1: 2}
    assert list(place.pods()) == [before]
    assert place.kubectl.get("jobqueue", "shop") is not None
    place.kubectl("delete", "jobqueue", "shop", "--timeout=30s")
    eventually(lambda: not place.pods(), within=90, what="the workers to go with their JobQueue")
    assert place.kubectl.get("deployment", "shop-work") is None
    began = time.monotonic()
    place.kubectl("delete", "namespace", place.namespace, "--timeout=60s")
    assert time.monotonic() - began < 60


def test_upgrade(place: Place) -> None:
    place.put(job_class(replicas={"pin": 1}))
    before = place.until_pods(1)
    template = place.kubectl.get("deployment", "shop-work")["spec"]["template"]
    place.upgrade(tickSeconds=3)
    variables = place.kubectl.get(OPERATOR)["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "JOBQUEUE_OPERATOR_TICK", "value": "3"} in variables
    place.put(job_class(replicas={"pin": 2}))  # so that the new operator is seen to act
    after = place.until_pods(2)
    assert place.kubectl.get("deployment", "shop-work")["spec"]["template"] == template
    assert before.keys() < after.keys()
