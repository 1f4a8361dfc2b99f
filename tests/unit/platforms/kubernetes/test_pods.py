"""From what an API server says of a pod, however little, to a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobqueue_operator.planner.facts import Phase
from jobqueue_operator.platforms.kubernetes import pods

if TYPE_CHECKING:
    from jobqueue_operator.platforms.kubernetes.pods import Pod

CREATED = "2026-03-01T08:00:00Z"
NOW = pods.moment("2026-03-01T08:01:00Z")


def thing(*, status: dict[str, Any] | None = None, node: str = "node-1", **metadata: Any) -> dict[str, Any]:
    head = {"name": "shop-email-1", "namespace": "shop", "uid": "u1", "creationTimestamp": CREATED} | metadata
    return {"metadata": head, "spec": {"nodeName": node} if node else {}} | ({"status": status} if status else {})


def container(state: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": "worker", "restartCount": 0, "ready": False, "state": state} | fields


def waiting(reason: str, message: str = "", **fields: Any) -> dict[str, Any]:
    return {
        "phase": "Pending",
        "containerStatuses": [container({"waiting": {"reason": reason, "message": message}}, **fields)],
    }


RUNS = {
    "phase": "Running",
    "conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"}],
    "containerStatuses": [container({"running": {"startedAt": "2026-03-01T08:00:05Z"}})],
}


def one(*args: Any, **fields: Any) -> Pod:
    (found,) = pods.read([thing(*args, **fields)], NOW)
    return found


def phase(pod: Pod) -> Phase:
    return pods.worker(pod, "email", NOW).phase


def test_a_pod_without_a_node_has_nothing() -> None:
    pod = one(node="", status={"phase": "Pending"})
    assert (pod.scheduled, pod.running, pod.ready, pod.failing) == (False, False, False, "")
    assert phase(pod) is Phase.STARTING


def test_a_pod_without_a_status_starts() -> None:
    assert phase(one()) is Phase.STARTING


def test_a_container_that_is_being_made_is_not_failing() -> None:
    pod = one(status=waiting("ContainerCreating"))
    assert (pod.scheduled, pod.failing, phase(pod)) == (True, "", Phase.STARTING)


def test_one_that_runs_is_ready_for_its_replica_set_and_starting_until_the_queue_knows_more() -> None:
    pod = one(status=RUNS, labels={"jobqueue.dev/revision": "abc"})
    assert (pod.running, pod.ready, pod.revision) == (True, True, "abc")
    worker = pods.worker(pod, "email", NOW)
    assert (worker.name, worker.class_, worker.phase, worker.age) == ("shop-email-1", "email", Phase.STARTING, 60)


def test_after_a_restart_its_age_is_that_of_its_container() -> None:
    again = container({"running": {"startedAt": "2026-03-01T08:00:50Z"}}, restartCount=2)
    worker = pods.worker(one(status=RUNS | {"containerStatuses": [again]}), "email", NOW)
    assert (worker.age, worker.restarts) == (10, 2)


def test_a_clock_that_is_behind_makes_no_negative_age() -> None:
    assert pods.worker(one(status=RUNS), "email", NOW - 3600).age == 0


ENDED = {"terminated": {"exitCode": 1, "reason": "Error", "message": "Traceback …\nModuleNotFoundError: shop.jobs\n"}}
SAID = "CrashLoopBackOff: exit status 1: ModuleNotFoundError: shop.jobs"


def test_a_crash_loop_says_what_the_container_said_last() -> None:
    pod = one(status=waiting("CrashLoopBackOff", "back-off 40s", lastState=ENDED, restartCount=3))
    worker = pods.worker(pod, "email", NOW)
    assert worker.phase is Phase.BACKOFF
    assert worker.last_error == SAID


def running(since: str, **fields: Any) -> dict[str, Any]:
    return {"phase": "Running", "containerStatuses": [container({"running": {"startedAt": since}}, **fields)]}


def test_between_two_crashes_it_fails_for_the_same_reason_until_it_is_ready_or_only_waits() -> None:
    ended = one(status={"phase": "Running", "containerStatuses": [container(ENDED)]})
    again = running("2026-03-01T08:00:58Z", lastState=ENDED, restartCount=1)
    assert (ended.failing, phase(ended)) == (SAID, Phase.BACKOFF)
    worker = pods.worker(one(status=again), "email", NOW)
    assert (worker.last_error, worker.phase) == (SAID, Phase.STARTING), "the queue may know that it is ready"
    assert worker.failing
    assert not one(status=running("2026-03-01T08:00:58Z", lastState=ENDED, restartCount=1, ready=True)).failing
    assert not one(status=running("2026-03-01T07:59:00Z", lastState=ENDED, restartCount=1)).failing
    assert one(status=running("2026-03-01T07:59:01Z", lastState=ENDED, restartCount=1)).failing == SAID


def test_one_that_was_drained_is_started_again_and_not_failing() -> None:
    drained = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    assert not one(status={"phase": "Running", "containerStatuses": [container(drained)]}).failing
    assert not one(status=running("2026-03-01T08:00:58Z", lastState=drained, restartCount=1)).failing
    # Until Kubernetes itself calls it so: a command that is no worker ends well, each time.
    pod = one(status=waiting("CrashLoopBackOff", "back-off", lastState=drained, restartCount=4))
    assert pod.failing == "CrashLoopBackOff: exit status 0"


def test_a_crash_loop_without_last_words_says_how_it_ended() -> None:
    silent = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    pod = one(status=waiting("CrashLoopBackOff", "back-off 40s restarting", lastState=silent))
    assert pod.failing == "CrashLoopBackOff: exit status 137 (OOMKilled)"
    assert one(status=waiting("CrashLoopBackOff", "back-off 40s")).failing == "CrashLoopBackOff: back-off 40s"


def test_a_crash_loop_of_a_worker_that_logs_says_its_error() -> None:
    lines = (
        '{"class": "email", "event": "health endpoints", "level": "info", "port": 8080}\n'
        '{"error": "no module named shop", "class": "email", "event": "cannot start", "level": "critical"}\n'
    )
    logged = {"terminated": {"exitCode": 2, "reason": "Error", "message": lines}}
    pod = one(status=waiting("CrashLoopBackOff", lastState=logged))
    assert pod.failing == "CrashLoopBackOff: exit status 2: cannot start: no module named shop"


def test_what_a_container_waits_for_is_not_explained_by_how_it_ended_before() -> None:
    pod = one(status=waiting("ErrImagePull", "no such tag", lastState=ENDED, restartCount=1))
    assert pod.failing == "ErrImagePull: no such tag"


def test_an_image_that_does_not_come_says_why() -> None:
    pod = one(status=waiting("ImagePullBackOff", "Back-off pulling image registry.example/shop:1"))
    assert pod.failing == "ImagePullBackOff: Back-off pulling image registry.example/shop:1"
    assert phase(pod) is Phase.BACKOFF


def test_what_is_said_is_bounded() -> None:
    assert len(one(status=waiting("ErrImagePull", "x" * 5000)).failing) == pods.SAID_MOST


def test_another_container_that_fails_keeps_the_worker_from_coming_up() -> None:
    init = container({"waiting": {"reason": "CrashLoopBackOff"}}, lastState=ENDED) | {"name": "migrate"}
    made = container({"waiting": {"reason": "PodInitializing"}})
    pod = one(status={"phase": "Pending", "initContainerStatuses": [init], "containerStatuses": [made]})
    said = "CrashLoopBackOff: container migrate: exit status 1: ModuleNotFoundError: shop.jobs"
    assert (pod.failing, phase(pod)) == (said, Phase.BACKOFF)
    init["state"] = {"running": {"startedAt": "2026-03-01T08:00:58Z"}}
    pod = one(status={"phase": "Pending", "initContainerStatuses": [init], "containerStatuses": [made]})
    assert (pod.failing, phase(pod)) == (said, Phase.BACKOFF)


def test_one_whose_end_was_asked_for_drains_and_is_lost_when_its_node_never_says_that_it_ended() -> None:
    pod = one(status=RUNS, deletionTimestamp="2026-03-01T08:00:30Z")
    assert (pod.leaving, phase(pod)) == (True, Phase.DRAINING)
    assert not pods.lost(pod, NOW, 30)
    assert pods.lost(pod, NOW + 1, 30)
    assert not pods.lost(one(status=RUNS), NOW + 10**9, 30)


@pytest.mark.parametrize("ended", ["Failed", "Succeeded"])
def test_an_evicted_pod_is_none_unless_it_is_being_deleted(ended: str) -> None:
    evicted = thing(status={"phase": ended, "reason": "Evicted", "message": "The node was low on memory."})
    assert pods.read([evicted], NOW) == []
    evicted["metadata"]["deletionTimestamp"] = CREATED
    assert [pod.leaving for pod in pods.read([evicted], NOW)] == [True]


@pytest.mark.parametrize(("text", "cost"), [("-1000", -1000), ("0", 0), ("many", 0), ("", 0), ("9" * 5000, 0)])
def test_a_deletion_cost_that_is_no_number_is_none(text: str, cost: int) -> None:
    assert one(annotations={pods.DELETION_COST: text}).cost == cost


def partly(full: Any) -> st.SearchStrategy[Any]:
    """Any part of a document: fields left out, null, or lists shorter."""
    if isinstance(full, dict):
        return st.none() | st.fixed_dictionaries({}, optional={key: partly(value) for key, value in full.items()})
    if isinstance(full, list):
        return st.none() | st.lists(st.one_of([partly(each).filter(bool) for each in full]), max_size=3)
    return st.just(full)


FULL = {
    "phase": "Running",
    "conditions": RUNS["conditions"],
    "initContainerStatuses": [container({"waiting": {"reason": "ErrImagePull", "message": "no"}})],
    "containerStatuses": [
        container({"waiting": {"reason": "CrashLoopBackOff", "message": "m"}}, lastState=ENDED),
        container({"running": {"startedAt": CREATED}, "terminated": {"exitCode": 1}}),
    ],
}


@settings(max_examples=150)
@given(status=partly(FULL), spec=partly({"nodeName": "n"}), labels=partly({"jobqueue.dev/revision": "r"}))
def test_a_status_of_which_anything_is_missing_is_read(status: Any, spec: Any, labels: Any) -> None:
    found = {
        "metadata": thing()["metadata"] | {"labels": labels, "annotations": labels},
        "spec": spec,
        "status": status,
    }
    for pod in pods.read([found], NOW):
        assert pods.worker(pod, "email", NOW).last_error == pod.failing
