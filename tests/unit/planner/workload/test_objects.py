"""What a class's objects hold, field by field."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

import pytest

from jobqueue_operator.planner import workload
from jobqueue_operator.planner.workload import merge
from jobqueue_operator.platforms.local import template
from services.restricted import violations
from unit.planner.workload import shop

if TYPE_CHECKING:
    from pathlib import Path

SELECTOR = {"jobqueue.dev/queue": "shop", "jobqueue.dev/class": "email"}
LABELS = {
    "app.kubernetes.io/name": "jobqueue-worker",
    "app.kubernetes.io/instance": "shop",
    "app.kubernetes.io/component": "worker",
    "app.kubernetes.io/managed-by": "jobqueue-operator",
    **SELECTOR,
}
RABBITMQ = {"type": "RabbitMQ", "rabbitmq": {"secretRef": {"name": "broker-login"}}}


def test_each_object_belongs_to_the_jobqueue_and_says_so() -> None:
    one = shop.made(network_policy=True)
    account = workload.service_account(shop.shop(), owner_uid=shop.OWNER)
    for each in (one.deployment, one.disruption_budget, one.network_policy, account):
        assert each is not None
        head = each["metadata"]
        assert head["namespace"] == "default"
        (owner,) = head["ownerReferences"]
        assert owner == {
            "apiVersion": "jobqueue.dev/v1alpha1",
            "kind": "JobQueue",
            "name": "shop",
            "uid": shop.OWNER,
            "controller": True,
            "blockOwnerDeletion": False,
        }
        own = {k: v for k, v in LABELS.items() if k != "jobqueue.dev/class"} if each is account else LABELS
        assert head["labels"] == own
        assert head["name"] == ("shop-worker" if each is account else "shop-email")
    assert account["automountServiceAccountToken"] is False
    assert (one.deployment["apiVersion"], one.deployment["kind"]) == ("apps/v1", "Deployment")


def test_the_selector_is_the_two_labels_that_never_change_and_the_pods_have_them() -> None:
    spec = shop.made().deployment["spec"]
    assert spec["selector"] == {"matchLabels": SELECTOR}
    assert LABELS.items() <= spec["template"]["metadata"]["labels"].items()


def test_the_revision_is_on_the_pods_twice() -> None:
    one = shop.made()
    meta = one.deployment["spec"]["template"]["metadata"]
    assert re.fullmatch(r"[0-9a-f]{10}", one.revision)
    assert meta["labels"]["jobqueue.dev/revision"] == meta["annotations"]["jobqueue.dev/revision"] == one.revision


def test_replicas_and_strategy_come_last() -> None:
    one = shop.made()
    assert not {"replicas", "strategy"} & one.deployment["spec"].keys()
    spec = workload.scaled(one, replicas=0, rolling=workload.Rolling(1, 0))["spec"]
    rolling = {"maxSurge": 1, "maxUnavailable": 0}
    assert (spec["replicas"], spec["strategy"]) == (0, {"type": "RollingUpdate", "rollingUpdate": rolling})
    assert not {"replicas", "strategy"} & one.deployment["spec"].keys(), "what was made is not changed"


def test_a_rollout_may_wait_for_a_whole_drain_before_it_counts_as_stalled() -> None:
    one = shop.made(shop.shop(email__drain={"timeout": "9m"}))
    spec = one.deployment["spec"]
    assert one.grace == 540 + 5 + 3 + 5 == spec["template"]["spec"]["terminationGracePeriodSeconds"]
    assert spec["progressDeadlineSeconds"] == 600 + one.grace
    assert spec["revisionHistoryLimit"] == 2


def test_one_pod_at_a_time_may_be_disrupted_and_a_broken_one_always() -> None:
    assert shop.made().disruption_budget["spec"] == {
        "selector": {"matchLabels": SELECTOR},
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }


def test_a_network_policy_is_made_when_asked_for() -> None:
    assert shop.made().network_policy is None
    policy = shop.made(network_policy=True).network_policy
    assert policy is not None
    spec = policy["spec"]
    assert spec["podSelector"] == {"matchLabels": SELECTOR}
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["ingress"] == [{"ports": [{"protocol": "TCP", "port": 8080}]}]
    dns, databases = spec["egress"]
    assert dns == {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}
    assert [each["port"] for each in databases["ports"]] == [5432, 6432]
    policy = shop.made(shop.shop(wakeup=RABBITMQ), network_policy=True).network_policy
    assert policy is not None
    assert [each["port"] for each in policy["spec"]["egress"][1]["ports"]] == [5432, 6432, 5671, 5672]


def test_names_fit_into_what_kubernetes_adds_to_them() -> None:
    assert workload.object_name("shop", "email") == "shop-email"
    whole = f"{'q' * 26}-{'c' * 25}"
    assert workload.object_name("q" * 26, "c" * 25) == whole
    longer = workload.object_name("q" * 26, "c" * 26)
    assert longer == f"{'q' * 26}-{'c' * 19}-{hashlib.sha256(f'{whole}c'.encode()).hexdigest()[:5]}"
    assert len(longer) == 52
    names = {workload.object_name("q" * 63, "c" * n) for n in range(1, 41)}
    assert len(names) == 40


def test_the_pods_are_restricted() -> None:
    for queue in (shop.shop(), shop.shop(wakeup=RABBITMQ), shop.shop(email__podTemplate={})):
        assert violations(shop.pod(queue)) == []


def test_the_worker_runs_as_nobody_on_a_root_that_it_cannot_write() -> None:
    context = shop.pod()["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (65532, 65532, 65532)
    assert shop.worker()["securityContext"]["readOnlyRootFilesystem"] is True
    writable = {each["name"]: each["mountPath"] for each in shop.worker()["volumeMounts"] if not each.get("readOnly")}
    assert writable == {"run": "/run/jobqueue", "tmp": "/tmp"}  # noqa: S108 - the pod's
    volumes = {each["name"]: each for each in shop.pod()["volumes"]}
    assert volumes["run"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Mi"}
    assert volumes["tmp"]["emptyDir"] == {"sizeLimit": "1Gi"}


def test_the_worker_has_no_token_and_hears_of_no_services() -> None:
    pod = shop.pod()
    assert pod["serviceAccountName"] == "shop-worker"
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False


def test_secrets_are_files_of_the_listed_keys_each_of_which_may_be_missing() -> None:
    login = ["host", "port", "dbname", "user", "password", "sslmode", "sslrootcert"]
    queue = shop.shop(wakeup=RABBITMQ)
    for one, expected in (
        (shop.shop(), {"database": ("shop-queue-worker", login), "listen": ("shop-queue-direct", login)}),
        (queue, {"database": ("shop-queue-worker", login), "broker": ("broker-login", ["url"])}),
    ):
        secrets = {each["name"]: each["secret"] for each in shop.pod(one)["volumes"] if "secret" in each}
        found = {name: (each["secretName"], [i["key"] for i in each["items"]]) for name, each in secrets.items()}
        assert found == expected
        assert all(each["optional"] and each["defaultMode"] == 0o440 for each in secrets.values())
        assert all(item["key"] == item["path"] for each in secrets.values() for item in each["items"])
        mounts = {each["name"]: each for each in shop.worker(one)["volumeMounts"]}
        for name in expected:
            # A subPath would never see a rotated password.
            assert mounts[name] == {"name": name, "mountPath": f"/etc/jobqueue/{name}", "readOnly": True}


def test_only_who_listens_has_the_login_for_it() -> None:
    assert "JOBQUEUE_LISTEN_DSN_DIR" in shop.environment()
    quiet = shop.shop(wakeup={"type": "Polling"})
    assert "JOBQUEUE_LISTEN_DSN_DIR" not in shop.environment(quiet)
    assert "listen" not in {each["name"] for each in shop.pod(quiet)["volumes"]}


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({}, "JOBQUEUE_WORKER_NAME", "metadata.name"),
        ({}, "JOBQUEUE_NAMESPACE", "metadata.namespace"),
        ({}, "JOBQUEUE_QUEUE", "shop"),
        ({}, "JOBQUEUE_DSN_DIR", "/etc/jobqueue/database"),
        ({}, "JOBQUEUE_LISTEN_DSN_DIR", "/etc/jobqueue/listen"),
        ({}, "JOBQUEUE_DSN", ""),
        ({}, "JOBQUEUE_LISTEN_DSN", ""),
        ({}, "JOBQUEUE_SCHEMA", "jobqueue"),
        ({"database__schema": "work"}, "JOBQUEUE_SCHEMA", "work"),
        ({}, "JOBQUEUE_CONCURRENCY", "16"),
        ({}, "JOBQUEUE_DRAIN_TIMEOUT", "35"),
        ({"email__drain": {"timeout": "1500ms"}}, "JOBQUEUE_DRAIN_TIMEOUT", "1.5"),
        ({}, "JOBQUEUE_DRAIN_SOCKET", "/run/jobqueue/drain.sock"),
        ({}, "JOBQUEUE_HEALTH_PORT", "8080"),
        ({}, "JOBQUEUE_LOG_FORMAT", "json"),
        ({}, "JOBQUEUE_POLL_INTERVAL", "2"),
        ({}, "JOBQUEUE_WAKEUP", "notify"),
        ({"wakeup": {"type": "Polling"}}, "JOBQUEUE_WAKEUP", "polling"),
        ({"wakeup": RABBITMQ}, "JOBQUEUE_WAKEUP", "rabbitmq"),
        ({"wakeup": RABBITMQ}, "JOBQUEUE_BROKER_URL", "/etc/jobqueue/broker/url"),
        ({"email__lease__heartbeat": "2s"}, "JOBQUEUE_HEARTBEAT", "2"),
        ({}, "SMTP_HOST", "mail.example"),
    ],
)
def test_the_environment(fields: dict[str, Any], name: str, value: str) -> None:
    assert shop.environment(shop.shop(**fields))[name] == value


def test_the_environment_is_that_of_jobqueue_up(tmp_path: Path) -> None:
    queue = shop.shop(email__lease__heartbeat="2s")
    database = {"JOBQUEUE_DSN_DIR": "/etc/jobqueue/database", "JOBQUEUE_SCHEMA": "jobqueue"}
    local = template.template(queue, queue.spec.classes[0], database=database, directory=tmp_path)
    there = {name: value for name, value in local.environment.items() if name.startswith(("JOBQUEUE_", "PYTHON", "SM"))}
    del there["JOBQUEUE_GENERATION"], there["JOBQUEUE_NAMESPACE"]  # of this machine alone; here a field of the pod
    there.pop("PYTHONPATH", None)
    here = shop.environment(queue)
    assert there.items() <= here.items()
    # What `up` gives each worker when it starts it, and what it need not keep out.
    assert here.keys() - there.keys() == {
        *("JOBQUEUE_WORKER_NAME", "JOBQUEUE_NAMESPACE", "JOBQUEUE_DRAIN_SOCKET", "JOBQUEUE_HEALTH_PORT"),
        *("JOBQUEUE_DSN", "JOBQUEUE_LISTEN_DSN", "JOBQUEUE_LISTEN_DSN_DIR"),
    }
    assert list(local.command[-5:]) == shop.worker(queue)["args"]
    assert local.grace == shop.made(queue).grace


def test_the_worker_is_the_first_container_with_the_apps_image_and_arguments() -> None:
    worker = shop.pod()["containers"][0]
    assert worker["name"] == "worker"
    assert worker["image"] == "registry.example/shop-worker:1.4.2"
    assert worker["args"] == ["worker", "--app", "shop.jobs:app", "--class", "email"]
    assert "command" not in worker, "the image's entrypoint"
    assert worker["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert worker["resources"] == {"requests": {"cpu": "50m", "memory": "256Mi"}}


def test_the_worker_is_drained_before_it_is_stopped_and_has_the_time() -> None:
    assert shop.worker()["lifecycle"] == {"preStop": {"exec": {"command": ["jobqueue", "drain"]}}}
    assert shop.pod()["terminationGracePeriodSeconds"] == 35 + 5 + 3 + 5


def test_probes_ask_what_does_not_depend_on_the_database_and_never_progress() -> None:
    worker = shop.worker()
    assert worker["ports"] == [{"name": "health", "containerPort": 8080, "protocol": "TCP"}]
    asked = {kind: worker[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert asked == {
        "startupProbe": {"path": "/live", "port": "health"},
        "livenessProbe": {"path": "/live", "port": "health"},
        "readinessProbe": {"path": "/ready", "port": "health"},
    }
    assert worker["startupProbe"]["periodSeconds"] * worker["startupProbe"]["failureThreshold"] == 120
    assert worker["livenessProbe"]["periodSeconds"] * worker["livenessProbe"]["failureThreshold"] == 60
    assert worker["readinessProbe"]["periodSeconds"] * worker["readinessProbe"]["failureThreshold"] == 2


def test_workers_spread_over_nodes_and_zones_without_insisting() -> None:
    spread = shop.pod()["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    for each in spread:
        assert (each["maxSkew"], each["whenUnsatisfiable"]) == (1, "ScheduleAnyway")
        assert each["labelSelector"] == {"matchLabels": SELECTOR}
        assert each["matchLabelKeys"] == ["pod-template-hash"]


def unmarked(template: dict[str, Any]) -> Any:
    gone = {"jobqueue.dev/revision": None}
    return merge.merge(template, {"metadata": {"labels": gone, "annotations": gone}})


ROLLS: list[dict[str, Any]] = [
    {"image": "registry.example/shop-worker:1.4.3"},
    {"app": "shop.other:app"},
    {"database__workerSecretRef": {"name": "another"}},
    {"database__listenSecretRef": {"name": "another"}},
    {"database__schema": "work"},
    {"wakeup": {"type": "Polling"}},
    {"wakeup": {"type": "Notify", "pollInterval": "3s"}},
    {"email__concurrency": 17},
    {"email__drain": {"timeout": "36s"}},
    {"email__lease__heartbeat": "4s"},
    {"email__podTemplate__metadata__labels": {"team": "others"}},
    {"email__podTemplate__metadata__annotations": {"a": "b"}},
    {"email__podTemplate__spec__priorityClassName": "other"},
]
STAYS: list[dict[str, Any]] = [
    {"retention": {"done": "1d"}},
    {"database__operatorSecretRef": {"name": "another"}},
    {"email__timeout": "31s"},  # drain.timeout is stated
    {"email__target": {"oldestMessageAge": "5s"}},
    {"email__replicas": {"min": 4, "max": 40, "behavior": "Calm"}},
    {"email__lease__duration": "2m"},
    {"email__retry": {"maxAttempts": 3}},
    {"email__capacity__weight": 7},
    {"email__drain": {"timeout": "35s", "maxGrace": "20m"}},
    {"email__schedule": []},
    {"email__paused": True},
    {"email__tenancy": {"fair": True}},
    {"email__keyLimit": 4},
    {"email__podTemplate__spec__automountServiceAccountToken": False},
    {
        "email__podTemplate__spec__containers": [
            {**shop.MANIFEST["spec"]["classes"][0]["podTemplate"]["spec"]["containers"][0], "volumeMounts": []}
        ]
    },
]


@pytest.mark.parametrize("fields", ROLLS, ids=str)
def test_what_pods_are_made_from_makes_a_new_revision(fields: dict[str, Any]) -> None:
    before, after = shop.made(), shop.made(shop.shop(**fields))
    assert unmarked(before.deployment["spec"]["template"]) != unmarked(after.deployment["spec"]["template"])
    assert before.revision != after.revision


@pytest.mark.parametrize("fields", STAYS, ids=str)
def test_what_only_the_queue_or_the_operator_reads_changes_no_pod(fields: dict[str, Any]) -> None:
    before, after = shop.made(), shop.made(shop.shop(**fields))
    assert shop.shop() != shop.shop(**fields)
    assert before.deployment["spec"]["template"] == after.deployment["spec"]["template"]
    assert before.revision == after.revision


def test_the_class_timeout_counts_when_no_drain_timeout_is_stated() -> None:
    before, after = (shop.made(shop.shop(email__drain={}, email__timeout=timeout)) for timeout in ("30s", "31s"))
    assert before.revision != after.revision
    assert after.grace == before.grace + 1


def test_options_that_are_not_of_the_pod_change_no_revision() -> None:
    one = shop.made()
    other = workload.objects(shop.shop(), shop.shop().spec.classes[0], owner_uid="another", network_policy=True)
    assert one.revision == other.revision


def backwards(value: Any) -> Any:
    """Write every mapping in the other order, as a server may return it."""
    if isinstance(value, dict):
        return {name: backwards(inner) for name, inner in reversed(value.items())}
    return [backwards(inner) for inner in value] if isinstance(value, list) else value


def test_the_order_of_fields_changes_no_revision() -> None:
    template = shop.MANIFEST["spec"]["classes"][0]["podTemplate"]
    assert list(backwards(template)) != list(template)
    assert shop.made(shop.shop(email__podTemplate=backwards(template))).revision == shop.made().revision


def test_a_restart_is_a_new_revision() -> None:
    before, first, second = (
        shop.made(restarted_at=at) for at in (None, "2026-12-03T07:00:00Z", "2026-12-03T08:00:00Z")
    )
    assert len({before.revision, first.revision, second.revision}) == 3
    assert "jobqueue.dev/restarted-at" not in before.deployment["spec"]["template"]["metadata"]["annotations"]
    annotations = first.deployment["spec"]["template"]["metadata"]["annotations"]
    assert annotations["jobqueue.dev/restarted-at"] == "2026-12-03T07:00:00Z"
    assert first.revision == shop.made(restarted_at="2026-12-03T07:00:00Z").revision
