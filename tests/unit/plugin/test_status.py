"""What is read of a JobQueue and its pods, what holds back, and how it is said."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobqueue_operator.plugin import answer, holding, pods, reading, words

NOW = datetime(2026, 5, 4, 8, 0, tzinfo=UTC)
READY = {"type": "Ready", "status": "True"}


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def queue(status: dict[str, Any] | None = None, *classes: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": "shop", "namespace": "web", "generation": 2},
        "spec": {"app": "shop.jobs:app", "classes": list(classes or [{"name": "email"}])},
        **({"status": status} if status is not None else {}),
    }


def pod(name: str = "shop-email-1", revision: str = "new", /, **status: Any) -> dict[str, Any]:
    labels = {"jobqueue.dev/class": "email", "jobqueue.dev/revision": revision}
    metadata = {"name": name, "labels": labels, "creationTimestamp": ago(60), **status.pop("metadata", {})}
    return {"metadata": metadata, "spec": {"nodeName": "node1"}, "status": status}


def deployment(**status: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"jobqueue.dev/revision": "new"}}}
    return {
        "metadata": {"name": "shop-email", "labels": {"jobqueue.dev/class": "email"}},
        "spec": {"replicas": 3, "template": template},
        "status": status,
    }


SAID = '{"event": "up", "level": "info"}\n{"error": "no app", "event": "cannot start", "level": "critical"}\n'


def container(**members: Any) -> dict[str, Any]:
    return {"name": "worker", "restartCount": 0, **members}


def holds(found: reading.Queue) -> list[str]:
    every = [*holding.of_queue(found), *(h for c in found.classes for h in holding.of_class(found, c))]
    return [f"{hold.what}: {hold.message}" for hold in every]


def said(found: reading.Queue) -> str:
    return "\n".join(words.status(found, NOW))


@pytest.mark.parametrize(
    ("status", "phase", "message", "stuck"),
    [
        ({"conditions": [READY]}, "Ready", "", False),
        ({}, "Starting", "", False),
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
                ]
            },
            "Unscheduled",
            "Unschedulable: 0/3 nodes",
            True,
        ),
        ({"containerStatuses": [container(state={"waiting": {"reason": "ContainerCreating"}})]}, "Starting", "", False),
        (
            {"containerStatuses": [container(state={"waiting": {"reason": "ErrImagePull", "message": "no such tag"}})]},
            "BackOff",
            "ErrImagePull: no such tag",
            True,
        ),
        (
            {
                "containerStatuses": [
                    container(
                        state={"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
                        lastState={"terminated": {"exitCode": 2, "reason": "Error", "message": SAID}},
                    )
                ]
            },
            "BackOff",
            "CrashLoopBackOff: it ended last with status 2 (Error: cannot start: no app)",
            True,
        ),
        (
            {"containerStatuses": [container(lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}})]},
            "Starting",
            "it ended last with status 137 (OOMKilled)",
            False,
        ),
        (
            {"conditions": [READY], "metadata": {"annotations": {pods.DELETION_COST: "-1"}}},
            "Retired",
            "finishes what it has, and goes",
            False,
        ),
        (
            {"conditions": [READY], "metadata": {"deletionTimestamp": ago(-12), "deletionGracePeriodSeconds": 48}},
            "Draining",
            "12s of 48s left",
            False,
        ),
        (
            {"metadata": {"deletionTimestamp": ago(1)}},
            "Draining",
            "its grace is over, and nobody has ended it: is its node there?",
            True,
        ),
        (
            {"conditions": [{"type": "Ready", "status": "Unknown", "message": "kubelet stopped posting"}]},
            "Starting",
            "its node does not answer: kubelet stopped posting",
            True,
        ),
        ({"phase": "Failed", "reason": "Evicted", "message": "disk"}, "Ended", "Evicted: disk", False),
    ],
)
def test_where_a_pod_is_in_its_life(status: dict[str, Any], phase: str, message: str, stuck: bool) -> None:  # noqa: FBT001
    found = pods.read(pod(**status), NOW)
    assert (found.phase, found.message, found.stuck, found.age, found.node) == (phase, message, stuck, 60.0, "node1")


def test_no_operator_has_looked() -> None:
    found = reading.job_queue(queue(), reading.Parts(), now=NOW)
    assert holds(found) == [
        "operator: it has not looked at this JobQueue yet: is one running, and for this namespace?",
    ]
    assert said(found).splitlines()[0] == "JobQueue shop in namespace web: no status yet"
    assert "email: no decision yet" in said(found)
    assert "is one running" in list(words.listing([found]))[1]


def test_the_operator_is_behind_or_has_not_seen_a_class() -> None:
    status = {"observedGeneration": 1, "classes": [{"name": "email", "replicas": 2}]}
    found = reading.job_queue(queue(status, {"name": "email"}, {"name": "new"}), reading.Parts(), now=NOW)
    assert holds(found) == [
        "operator: the spec is of generation 2, and it has looked at 1: is it running?",
        "operator: it has not looked at this class yet",
    ]


def test_conditions_are_bad_news_each_in_its_own_way() -> None:
    conditions = [
        {"type": "Ready", "status": "False", "reason": "Summed", "message": "above"},
        {"type": "DatabaseReady", "status": "False", "reason": "Refused", "message": "wrong password"},
        {"type": "MetricsAvailable", "status": "Unknown", "reason": "Blind"},
        {"type": "SpecAccepted", "status": "True", "reason": "Fine"},
        {"type": "CapacityAvailable", "status": "False", "reason": "AtCapacity", "message": "said of its class"},
        {"type": "HeadBlocked", "status": "True", "reason": "Key", "message": "one key has it all"},
        {"type": "RolloutStalled", "status": "False", "reason": "Done"},
        {"type": "Progressing", "status": "False", "reason": "Complete"},
    ]
    found = reading.job_queue(queue({"observedGeneration": 2, "conditions": conditions}), reading.Parts(), now=NOW)
    assert holds(found)[:-1] == [
        "DatabaseReady: Refused: wrong password",
        "MetricsAvailable: Blind",
        "HeadBlocked: Key: one key has it all",
    ]


def test_who_holds_a_class_back() -> None:
    classes = [
        {"name": "email", "replicas": 2, "desiredReplicas": 4, "reason": "DownstreamCapacity", "message": "2 of 4"}
    ]
    capacity = {
        "metadata": {"name": "db", "namespace": "dba"},
        "spec": {"units": 20},
        "status": {
            "limit": 16,
            "inUse": 15,
            "allocations": [
                {
                    "jobQueue": "web/shop",
                    "class": "email",
                    "asked": 8,
                    "allocated": 4,
                    "heldBackBy": ["web/shop/report"],
                },
                {"jobQueue": "web/other", "class": "email", "asked": 9, "allocated": 1, "heldBackBy": []},
            ],
        },
    }
    spec = {"name": "email", "paused": True, "capacity": {"ref": {"name": "db", "namespace": "dba"}}}
    raw = queue({"observedGeneration": 2, "classes": classes}, spec)
    assert reading.references(raw) == [("dba", "db")]
    parts = reading.Parts(
        deployments=[
            deployment(
                conditions=[{"type": "ReplicaFailure", "status": "True", "reason": "Quota", "message": "pods=4"}]
            )
        ],
        pods=[
            pod("a", conditions=[READY], metadata={"deletionTimestamp": ago(-5)}),
            pod("b", "old", conditions=[READY]),
        ],
        capacities=[capacity],
    )
    found = reading.job_queue(raw, parts, now=NOW)
    assert holds(found) == [
        "paused: claims are stopped; `kubectl jobqueue resume shop email -n web` lets it go on",
        "downstream db: asks 8 units, gets 4 of 16; held back by web/shop/report",
        "workers: 2 of 4 decided are there, 3 are asked for; 1 that go still hold what they have",
        "Deployment shop-email: Quota: pods=4",
        "rollout: 1 of 2 pods are of an older revision",
    ]
    text = said(found)
    assert "email: 2 workers, 4 decided\n  DownstreamCapacity: 2 of 4\n" in text
    assert "downstream dba/db: 15 of 16 units in use, 20 in all" in text
    assert "  web/shop <  email  8     4     web/shop/report" in text
    shares = answer.job_queue(found)["capacities"][0]["shares"]
    assert [share["class"] for share in shares] == ["email", "email"]


def test_pods_that_do_not_start_are_named_once_and_shown_first() -> None:
    failing: dict[str, Any] = {
        "containerStatuses": [container(state={"waiting": {"reason": "ErrImagePull", "message": "no such tag"}})]
    }
    found = reading.job_queue(
        queue({"observedGeneration": 2, "classes": [{"name": "email"}]}),
        reading.Parts(
            pods=[*(pod(f"w{n}", conditions=[READY]) for n in range(30)), *(pod(f"x{n}", **failing) for n in range(5))]
        ),
        now=NOW,
    )
    assert holds(found) == ["pods: x0, x1, x2 and 2 more: BackOff: ErrImagePull: no such tag"]
    lines = said(found).splitlines()
    assert lines[lines.index(next(line for line in lines if "POD" in line)) + 1].startswith("  x0 ")
    assert "  … and 15 more" in lines


def test_a_class_that_was_taken_out_is_still_there_until_its_jobs_are_done() -> None:
    status = {"observedGeneration": 2, "classes": [{"name": "email"}, {"name": "gone", "replicas": 1, "readyJobs": 3}]}
    found = reading.job_queue(queue(status), reading.Parts(), now=NOW)
    assert holds(found) == ["removed: it is no longer in the spec; its workers go when its jobs are worked off"]


def test_what_anybody_wrote_stays_on_its_line() -> None:
    conditions = [
        {"type": "Ready", "status": "False", "reason": "\x1b[31m", "message": "a\nb", "lastTransitionTime": "?"}
    ]
    status = {"observedGeneration": 2, "conditions": conditions, "oldestMessageAge": "long ago"}
    found = reading.job_queue(queue(status), reading.Parts(pods=[pod("p\u202e", conditions=[READY])]), now=NOW)
    assert all(line.isprintable() for line in [*words.status(found, NOW), *words.listing([found])])
    assert json.loads(json.dumps(answer.job_queue(found), default=str))["oldest_message_age"] is None
