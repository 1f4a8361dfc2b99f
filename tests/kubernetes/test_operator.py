"""The operator, as a process, against a real API server and a real PostgreSQL. Pods are made and never run."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from services.operators import Operated, downstream, job_class, job_queue, secret
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from services.custom_resources import Resources
    from services.databases import Database
    from services.kubernetes import Cluster


@pytest.fixture
def operated(controllers: Cluster, resources: Resources) -> Iterator[Operated]:
    made = Operated(controllers, resources)
    yield made
    made.stop()


@pytest.fixture
def shop(operated: Operated, database: Database) -> Operated:
    """A JobQueue with its Secrets, and an operator that has made it ready."""
    operated.put(secret("shop-operator", database), secret("shop-worker", database), job_queue())
    operated.start()
    operated.until("Ready", "True")
    return operated


def enqueue(database: Database, count: int, class_: str = "email") -> None:
    with database.connect() as connection:
        connection.execute("SELECT jobqueue.enqueue(%s, 'work', '{}') FROM generate_series(1, %s)", (class_, count))


def replicas(operated: Operated, name: str = "shop-email") -> Any:
    return operated.deployment(name)["spec"]["replicas"]


def steps(operated: Operated) -> tuple[int, int]:
    found = operated.deployment()["spec"]["strategy"]["rollingUpdate"]
    return found["maxSurge"], found["maxUnavailable"]


def test_jobs_bring_workers_from_zero_and_the_status_says_so(shop: Operated, database: Database) -> None:
    assert replicas(shop) == 0
    enqueue(database, 10)
    eventually(lambda: replicas(shop) > 0, within=10)
    eventually(lambda: shop.status().get("readyJobs") == 10, within=40)
    found = shop.status()["classes"][0]
    assert (found["name"], found["readyJobs"], found["reason"]) == ("email", 10, "Demand")
    assert shop.status()["observedGeneration"] == 1


def test_what_somebody_changes_is_put_back_and_said(shop: Operated) -> None:
    path = f"/apis/apps/v1/namespaces/{shop.namespace}/deployments/shop-email"
    change = {"spec": {"replicas": 7, "template": {"spec": {"terminationGracePeriodSeconds": 1}}}}
    shop.cluster.request("PATCH", path, change, content="application/strategic-merge-patch+json")
    eventually(lambda: replicas(shop) == 0, within=10)
    assert shop.deployment()["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > 1
    eventually(lambda: "PutBack" in shop.events(), within=10)


@pytest.mark.parametrize(
    ("group", "plural", "name", "change"),
    [
        ("/apis/policy/v1", "poddisruptionbudgets", "shop-email", {"spec": {"maxUnavailable": 9}}),
        ("/apis/networking.k8s.io/v1", "networkpolicies", "shop-email", {"spec": {"policyTypes": ["Egress"]}}),
        ("/api/v1", "serviceaccounts", "shop-worker", {"automountServiceAccountToken": True}),
    ],
)
def test_whatever_of_ours_is_changed_or_deleted_is_put_back_and_said(
    operated: Operated, database: Database, group: str, plural: str, name: str, change: dict[str, Any]
) -> None:
    operated.put(secret("shop-operator", database), secret("shop-worker", database), job_queue())
    operated.start(network_policy="true")
    operated.until("Ready", "True")
    made = eventually(lambda: operated.object(group, plural, name), within=10)
    path = f"{group}/namespaces/{operated.namespace}/{plural}/{name}"

    def asked() -> Any:
        found = operated.object(group, plural, name) or {}
        return {key: value for key, value in found.items() if key not in {"metadata", "status"}}

    before = asked()
    operated.cluster.request("PATCH", path, change, content="application/merge-patch+json")
    eventually(lambda: asked() == before, within=10)
    eventually(lambda: operated.notes("PutBack") == 1, within=10)
    operated.cluster.request("DELETE", path)
    eventually(lambda: operated.object(group, plural, name), within=10)
    eventually(lambda: operated.notes("PutBack") == 2, within=10)
    assert operated.object(group, plural, name)["metadata"]["uid"] != made["metadata"]["uid"]


def test_the_account_of_a_paused_jobqueue_stays_as_somebody_made_it(shop: Operated) -> None:
    path = f"/api/v1/namespaces/{shop.namespace}/serviceaccounts/shop-worker"

    def changed() -> bool:
        return bool(shop.object("/api/v1", "serviceaccounts", "shop-worker")["automountServiceAccountToken"])

    shop.put(job_queue("shop", job_class(paused=True)))
    eventually(lambda: shop.status()["observedGeneration"] == 2, within=10)
    change = {"automountServiceAccountToken": True}
    shop.cluster.request("PATCH", path, change, content="application/merge-patch+json")
    shop.put(job_queue("shop", job_class(paused=True, timeout="6s")))
    eventually(lambda: shop.status()["observedGeneration"] == 3, within=10)
    assert changed()
    shop.put(job_queue())
    eventually(lambda: not changed(), within=10)


def test_a_secret_that_is_missing_is_named_and_its_coming_is_noticed(operated: Operated, database: Database) -> None:
    operated.put(job_queue())
    operated.start()
    found = operated.until("DatabaseReady", "False", "SecretRefused")
    assert found["message"] == f"Secret shop-operator: does not exist in namespace {operated.namespace}; create it"
    assert operated.deployment() is None
    operated.put(secret("shop-operator", database))
    operated.until("Ready", "True")
    assert replicas(operated) == 0


def test_a_login_that_aims_at_the_operators_own_host_is_refused(operated: Operated, database: Database) -> None:
    operated.put(secret("shop-operator", database), job_queue())
    operated.start(allow_hosts="")
    found = operated.until("DatabaseReady", "False", "SecretRefused")
    assert "loopback address (127.0.0.1)" in found["message"]


def test_a_capacity_that_is_missing_leaves_what_runs_and_its_coming_is_noticed(shop: Operated) -> None:
    limited = job_class(capacity={"ref": {"name": "orders"}}, concurrency=4)
    before = shop.deployment()["metadata"]["generation"]
    shop.put(job_queue("shop", limited))
    found = shop.until("SpecAccepted", "False", "CapacityMissing")
    assert f"DownstreamCapacity {shop.namespace}/orders; create it" in found["message"]
    assert "what was accepted last stays in force" in found["message"]
    assert shop.deployment()["metadata"]["generation"] == before
    shop.put(downstream("orders", units=8))
    shop.until("SpecAccepted", "True")
    eventually(lambda: shop.deployment()["metadata"]["generation"] > before, within=10)
    shop.until("Ready", "True", name="orders", kind="DownstreamCapacity")
    eventually(lambda: shop.status("orders", "DownstreamCapacity").get("limit") == 8, within=10)


def test_a_rollout_under_a_downstream_surges_only_from_units_to_spare(operated: Operated, database: Database) -> None:
    limited = job_class(capacity={"ref": {"name": "orders"}}, replicas={"min": 2, "max": 2})
    operated.put(secret("shop-operator", database), downstream("orders", units=6), job_queue("shop", limited))
    operated.start()
    eventually(lambda: len(operated.pods("email")) == 2, within=20)
    assert (replicas(operated), steps(operated)) == (2, (0, 1))
    operated.put(job_queue("shop", limited, image="example/shop:2"))
    eventually(lambda: len(operated.pods("email")) == 3, within=20)  # two have four units, the third takes what is left
    assert steps(operated) == (1, 0)
    before = operated.deployment()["metadata"]["generation"]
    operated.until("Progressing", "True")  # told at the end of a round that knew of the third
    assert (replicas(operated), operated.deployment()["metadata"]["generation"]) == (2, before)
    operated.put(downstream("orders", units=5))
    eventually(lambda: steps(operated) == (0, 1), within=10)
    assert replicas(operated) == 2


def test_a_class_that_was_removed_works_off_its_jobs_first_and_keeps_its_units(
    shop: Operated, database: Database
) -> None:
    capacity = {"ref": {"name": "orders"}}  # two units a worker
    shop.put(downstream("orders", units=4))
    shop.put(job_queue("shop", job_class(capacity=capacity), job_class("images", capacity=capacity)))
    eventually(lambda: shop.deployment("shop-images"), within=10)
    enqueue(database, 1, "images")
    eventually(lambda: replicas(shop, "shop-images") == 1, within=10)
    shop.put(job_queue("shop", job_class(capacity=capacity, replicas={"min": 2, "max": 2})))
    shop.until("ClassHasJobs", "True")
    found = shop.until("CapacityAvailable", "False", "MinimumNotMet")
    assert "asks for 4 units of" in found["message"]
    assert "workers of removed classes have 2" in found["message"]
    assert (replicas(shop, "shop-images"), replicas(shop)) == (1, 1)
    with database.connect() as connection:
        connection.execute("SELECT jobqueue.cancel(id) FROM jobqueue.jobs WHERE class = 'images'")
    eventually(lambda: shop.deployment("shop-images") is None, within=10)
    shop.until("ClassHasJobs", "False")
    eventually(lambda: replicas(shop) == 2, within=10)
    shop.until("CapacityAvailable", "True")


def test_a_deleted_jobqueue_takes_its_objects_along_and_says_what_it_leaves(shop: Operated, database: Database) -> None:
    enqueue(database, 3)
    eventually(lambda: shop.status().get("readyJobs") == 3, within=40)
    shop.cluster.request("DELETE", shop.resources.path("JobQueue", "shop"))
    eventually(lambda: shop.deployment() is None, within=40)
    eventually(lambda: "JobsLeft" in shop.events(), within=10)
    assert shop.object("/apis/policy/v1", "poddisruptionbudgets", "shop-email") is None


def test_nothing_of_ours_is_left_in_users_objects(shop: Operated) -> None:
    found = shop.resources.get("JobQueue", "shop")["metadata"]
    assert "finalizers" not in found
    assert found.get("annotations") is None


def test_two_jobqueues_share_a_database_and_the_younger_may_not_take_a_class(
    operated: Operated, database: Database
) -> None:
    for name in ("shop", "mail"):
        operated.put(secret(f"{name}-operator", database), secret(f"{name}-worker", database))
    operated.put(job_queue("shop", job_class()), job_queue("mail", job_class("letters")))
    operated.start()
    operated.until("Ready", "True")
    operated.until("Ready", "True", name="mail")
    operated.put(job_queue("mail", job_class("letters"), job_class("email")))
    found = operated.until("SpecAccepted", "False", "ClassTaken", name="mail")
    assert f"is JobQueue {operated.namespace}/shop's; rename it" in found["message"]
    assert operated.deployment("mail-email") is None


def test_whoever_else_is_aimed_at_a_deployment_is_named(shop: Operated) -> None:
    scaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "theirs"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop-email"},
            "maxReplicas": 3,
        },
    }
    path = f"/apis/autoscaling/v2/namespaces/{shop.namespace}/horizontalpodautoscalers"
    shop.cluster.request("POST", path, scaler)
    found = shop.until("Conflicting", "True", "HorizontalPodAutoscaler")
    assert found["message"].startswith("HorizontalPodAutoscaler theirs is aimed at Deployment shop-email")
    shop.cluster.request("DELETE", f"{path}/theirs")
    shop.until("Conflicting", "False")
    # JobQueue shop-email's class x and JobQueue shop's class email-x are made of objects of one name.
    shop.put(job_queue("shop", job_class(), job_class("email-x")))
    eventually(lambda: shop.deployment("shop-email-x"), within=10)
    owner = shop.deployment("shop-email-x")["metadata"]["ownerReferences"][0]["uid"]
    other = job_queue("shop-email", job_class("x"), database=job_queue("shop")["spec"]["database"])
    shop.put(other)
    found = shop.until("Conflicting", "True", "DeploymentTaken", name="shop-email")
    assert "Deployment shop-email-x belongs to JobQueue shop and is not touched" in found["message"]
    assert shop.deployment("shop-email-x")["metadata"]["ownerReferences"][0]["uid"] == owner


def test_a_crash_loop_is_one_condition_and_one_event(shop: Operated, database: Database) -> None:
    enqueue(database, 3)
    (pod,) = eventually(lambda: shop.pods("email"), within=10)
    path = f"/api/v1/namespaces/{shop.namespace}/pods/{pod['metadata']['name']}/status"
    said = '{"error": "no module named shop", "event": "cannot start", "level": "critical"}'
    ended = {"terminated": {"exitCode": 2, "reason": "Error", "message": said}}
    running: Any = {"running": {"startedAt": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}}
    waiting: Any = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}

    def crash(state: Any, restarts: int) -> None:
        worker = {"name": "worker", "image": "x", "imageID": "x", "ready": False, "restartCount": restarts}
        worker |= {"state": state, "lastState": ended if restarts else {}}
        change = {"status": {"phase": "Running", "containerStatuses": [worker]}}
        shop.cluster.request("PATCH", path, change, content="application/merge-patch+json")

    crash(ended, 0)
    found = shop.until("Ready", "False", "WorkersFailing")
    assert found["message"].endswith("CrashLoopBackOff: exit status 2: cannot start: no module named shop")
    for restarts, state in enumerate((running, ended, waiting, running), 1):
        crash(state, restarts)
        # A class that is made tells that a round has seen it.
        shop.put(job_queue("shop", job_class(), job_class(f"class-{restarts}")))
        eventually(partial(shop.deployment, f"shop-class-{restarts}"), within=10)
    shop.put(job_queue())
    eventually(lambda: shop.status()["observedGeneration"] == 6, within=10)
    assert shop.condition("Ready")["lastTransitionTime"] == found["lastTransitionTime"]
    assert "ReadyTrue" not in shop.events()


def test_a_broken_jobqueue_disturbs_no_other(shop: Operated, database: Database) -> None:
    """What the schema cannot say: a pod template that cannot be merged, a database that is not there."""
    broken = job_class("broken", podTemplate={"spec": {"containers": [{"name": "worker", "env": "none"}]}})
    shop.put(job_queue("broken", broken), job_queue("lost", job_class("lost")))
    shop.put(secret("lost-operator", database, host="nowhere.invalid"))
    found = shop.until("SpecAccepted", "False", "InvalidPodTemplate", name="broken")
    assert "spec.classes[0].podTemplate.spec.containers[0].env" in found["message"]
    found = shop.until("DatabaseReady", "False", "SecretRefused", name="lost")
    assert "host nowhere.invalid cannot be looked up" in found["message"]
    enqueue(database, 5)
    eventually(lambda: replicas(shop) == 1, within=10)
