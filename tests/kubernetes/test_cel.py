"""The rules on a real API server: what each lets pass and what it refuses, in which words."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from jobqueue_operator.manifest import ManifestError, parse_manifests
from services.kubernetes import Refused
from services.operators import job_queue

if TYPE_CHECKING:
    from services.custom_resources import Resources

ROOT = Path(__file__).parents[2]
JOB_QUEUE = job_queue("shop", {"name": "email", "timeout": "30s"})
DOWNSTREAM = {
    "apiVersion": "jobqueue.dev/v1alpha1",
    "kind": "DownstreamCapacity",
    "metadata": {"name": "orders-db"},
    "spec": {"units": 40},
}
CLASS = "spec.classes[0]"
ENTRY = {"cron": "0 8 * * 1-5", "for": "2h"}
REF = {"ref": {"name": "orders-db"}}
"""Field of a class, a value that passes, one that does not, what the answer says of it: the field's path, the words."""
OF_A_CLASS: list[tuple[str, Any, Any, str, str]] = [
    (
        "replicas",
        {"min": 2, "max": 2},
        {"min": 3, "max": 2},
        "replicas.min",
        "min is above max; lower min or raise max",
    ),
    ("replicas", {"min": 30}, {"min": 1001}, "replicas.min", "should be less than or equal to 1000"),
    (
        "replicas",
        {"max": 2, "fallback": {"after": "5m", "replicas": 2}},
        {"max": 2, "fallback": {"after": "5m", "replicas": 3}},
        "replicas.fallback.replicas",
        "fallback.replicas is above max (10, or min, by default); lower it or raise max",
    ),
    (
        "replicas",
        {"min": 11, "fallback": {"after": "5m", "replicas": 11}},
        {"fallback": {"after": "5m", "replicas": 11}},
        "replicas.fallback.replicas",
        "lower it or raise max",
    ),
    (
        "schedule",
        [{**ENTRY, "min": 10}],
        [{**ENTRY, "min": 10}, {**ENTRY, "min": 11}],
        "schedule",
        "an entry's min is above replicas.max; lower it or raise max",
    ),
    (
        "schedule",
        [{**ENTRY, "min": 1, "cron": " */5 8 * *  MON"}],
        [{**ENTRY, "min": 1, "cron": "8 8"}],
        "schedule[0].cron",
        'is not a cron expression of five fields; write e.g. "0 8 * * 1-5"',
    ),
    (
        "schedule",
        [{**ENTRY, "min": 1, "cron": "0 8 1-7 * 1"}],
        [{**ENTRY, "min": 1, "cron": "0 0 8 * * *"}],
        "schedule[0].cron",
        'is not a cron expression of five fields; write e.g. "0 8 * * 1-5"',
    ),
    (
        "retry",
        {"backoff": {"initial": "1h", "max": "60m"}},
        {"backoff": {"initial": "10m1ms"}},
        "retry.backoff.initial",
        "initial is above max; lower initial or raise max",
    ),
    (
        "retry",
        {"backoff": {"initial": "1d", "max": "24h"}},
        {"backoff": {"initial": "1d", "max": "23h59m59s999ms"}},
        "retry.backoff.initial",
        "initial is above max; lower initial or raise max",
    ),
    (
        "lease",
        {"duration": "6s", "heartbeat": "2s"},
        {"duration": "6s", "heartbeat": "2s1ms"},
        "lease.duration",
        "lease.duration is shorter than 3 x lease.heartbeat; lengthen lease.duration or shorten lease.heartbeat",
    ),
    (
        "lease",
        {"duration": "1d", "heartbeat": "8h"},
        {"duration": "24h1ms"},
        "lease.duration",
        "from 100ms to 1d; write",
    ),
    ("lease", {"heartbeat": "20s"}, {"heartbeat": "20001ms"}, "lease.duration", "shorter than 3 x lease.heartbeat"),
    (
        "drain",
        {"timeout": "9m47s"},
        {"timeout": "9m47s1ms"},
        "drain.timeout",
        (
            "drain.timeout (timeout + 5s by default) + flush 5s + CLI start 3s + margin 5s is above drain.maxGrace; "
            "state a shorter drain.timeout or raise drain.maxGrace"
        ),
    ),
    ("drain", {"maxGrace": "48999ms"}, {"maxGrace": "47999ms"}, "drain.timeout", "raise drain.maxGrace"),
    ("timeout", "9m42s", "9m42s1ms", "drain.timeout", "state a shorter drain.timeout or raise drain.maxGrace"),
    (
        "timeout",
        "100ms",
        "99ms",
        "timeout",
        "is not a duration from 100ms to 7d; write e.g. 500ms, 30s, 2m, 1h30m or 7d",
    ),
    ("timeout", "0d1s500ms", "1s1m", "timeout", "is not a duration from 100ms to 7d; write e.g."),
    ("timeout", "1m", "99999d", "timeout", "is not a duration from 100ms to 7d; write e.g."),
    ("timeout", "1s", "1.5s", "timeout", "is not a duration from 100ms to 7d; write e.g."),
    (
        "target",
        {"oldestMessageAge": "7d"},
        {"oldestMessageAge": "7d1ms"},
        "target.oldestMessageAge",
        "to 7d; write e.g.",
    ),
    (
        "target",
        {"oldestMessageAge": "6d24h"},
        {"oldestMessageAge": "6d25h"},
        "target.oldestMessageAge",
        "to 7d; write e.g.",
    ),
    ("target", {"oldestMessageAge": "168h"}, {"oldestMessageAge": ""}, "target.oldestMessageAge", "to 7d; write e.g."),
    ("replicas", {"idleAfter": "0s"}, {"idleAfter": "-1s"}, "replicas.idleAfter", "from 0s to 7d; write e.g."),
    ("name", "a" * 40, "a" * 41, "name", "may not be more than 40"),
    ("name", "e-2", "E_2", "name", "is not a name; use lower-case letters, digits and '-', e.g. email-2"),
    (
        "capacity",
        {**REF, "minUnits": 3},
        {"ref": {"name": "orders-db", "namespace": "-shop"}},
        "capacity.ref.namespace",
        "is not a name; use lower-case letters, digits and '-'",
    ),
    ("concurrency", 1, 0, "concurrency", "should be greater than or equal to 1"),
]
"""Field of the spec, as above."""
OF_A_QUEUE: list[tuple[str, Any, Any, str, str]] = [
    (
        "wakeup",
        {"type": "RabbitMQ", "rabbitmq": {"secretRef": {"name": "b"}}},
        {"type": "RabbitMQ"},
        "spec.wakeup.type",
        "type RabbitMQ needs rabbitmq.secretRef; add it, or use type Notify",
    ),
    (
        "wakeup",
        {"type": "Polling", "pollInterval": "7d"},
        {"type": "Polling", "rabbitmq": {"secretRef": {"name": "b"}}},
        "spec.wakeup.rabbitmq",
        "only type RabbitMQ uses rabbitmq; leave it out, or use type RabbitMQ",
    ),
    (
        "wakeup",
        {"type": "Notify"},
        {"type": "notify"},
        "spec.wakeup.type",
        'supported values: "Notify", "Polling", "RabbitMQ"',
    ),
    ("retention", {"dead": "3650d"}, {"dead": "3650d1ms"}, "spec.retention.dead", "from 1m to 3650d; write e.g."),
    ("retention", {"done": "87600h"}, {"done": "59s"}, "spec.retention.done", "from 1m to 3650d; write e.g."),
    ("app", "shop:app", "shop", "spec.app", "is not MODULE:ATTRIBUTE; write e.g. shop.jobs:app"),
    (
        "image",
        "a",
        "a b",
        "spec.image",
        "is not an image; write e.g. registry.example/shop-worker:1.4.2, without spaces",
    ),
    (
        "database",
        {**JOB_QUEUE["spec"]["database"], "schema": "_q1"},
        {**JOB_QUEUE["spec"]["database"], "schema": "Q"},
        "spec.database.schema",
        "is not a schema's name; use lower-case letters, digits and '_', e.g. jobqueue",
    ),
    (
        "classes",
        [{"name": "a", "timeout": "1s"}, {"name": "b", "timeout": "1s"}],
        [{"name": "a", "timeout": "1s"}, {"name": "a", "timeout": "1s"}],
        "spec.classes[1]",
        "Duplicate value",
    ),
    ("classes", [{"name": "a", "timeout": "1s"}], [], "spec.classes", "should have at least 1 items"),
]
"""Whole specs of a DownstreamCapacity."""
OF_A_DOWNSTREAM: list[tuple[Any, Any, str, str]] = [
    ({"units": 1}, {}, "spec.units", "give either units, or connections: true"),
    ({"connections": True}, {"units": 1, "connections": True}, "spec.units", "give either units, or connections: true"),
    (
        {"units": 5, "reserve": 4},
        {"units": 5, "reserve": 5},
        "spec.reserve",
        "reserve leaves nothing of units; lower reserve, or raise units",
    ),
    (
        {"units": 5, "reserve": 1, "adaptive": {"minUnits": 4}},
        {"units": 5, "reserve": 1, "adaptive": {"minUnits": 5}},
        "spec.adaptive.minUnits",
        "adaptive.minUnits is above units less reserve; lower it, or raise units",
    ),
    (
        {"connections": True, "reserve": 9, "adaptive": {"minUnits": 20}},
        {"connections": True, "adaptive": {"errorRate": 0}},
        "spec.adaptive.errorRate",
        "should be greater than 0",
    ),
    (
        {"units": 1, "allow": [{"namespace": "a"}, {"namespace": "b"}]},
        {"units": 1, "allow": [{"namespace": "a"}, {"namespace": "a"}]},
        "spec.allow[1]",
        "Duplicate value",
    ),
    (
        {"units": 9, "allow": [{"namespace": "a", "minUnits": 2, "maxUnits": 2}]},
        {"units": 9, "allow": [{"namespace": "a", "minUnits": 3, "maxUnits": 2}]},
        "spec.allow[0].minUnits",
        "minUnits is above maxUnits; lower minUnits or raise maxUnits",
    ),
    (
        {"units": 1, "adaptive": {"latency": "7d"}},
        {"units": 1, "adaptive": {"latency": "7d1ms"}},
        "spec.adaptive.latency",
        "from 100ms to 7d; write e.g.",
    ),
]
NAMES = [
    ("shop.old", "metadata.name is no DNS label, which labels need; use at most 63 lower-case letters, digits and '-'"),
    ("a" * 64, "metadata.name is no DNS label, which labels need; use at most 63 lower-case letters, digits and '-'"),
]
IMMUTABLE = "is immutable, because the jobs are in it; put it back, and make another JobQueue for the other schema"


def queue(field: str, value: Any) -> dict[str, Any]:
    document: dict[str, Any] = copy.deepcopy(JOB_QUEUE)
    document["spec"][field] = value
    return document


def queue_of(field: str, value: Any) -> dict[str, Any]:
    return queue("classes", [{"name": "email", "timeout": "30s", field: value}])


def downstream(spec: Any) -> dict[str, Any]:
    return DOWNSTREAM | {"spec": spec}


CASES = [
    *((queue_of(f, good), queue_of(f, bad), f"{CLASS}.{path}", words) for f, good, bad, path, words in OF_A_CLASS),
    *((queue(f, good), queue(f, bad), path, words) for f, good, bad, path, words in OF_A_QUEUE),
    *((downstream(good), downstream(bad), path, words) for good, bad, path, words in OF_A_DOWNSTREAM),
]


def refusal(resources: Resources, document: Any) -> str:
    with pytest.raises(Refused) as caught:
        resources.create(document)
    assert caught.value.status == 422, "refused as invalid, by the schema or a rule"
    return caught.value.message


@pytest.mark.parametrize(
    ("good", "bad", "path", "words"), CASES, ids=[f"{path}: {words[:30]}" for *_, path, words in CASES]
)
def test_a_rule_passes_and_refuses(dry: Resources, good: Any, bad: Any, path: str, words: str) -> None:
    dry.create(good)
    message = refusal(dry, bad)
    assert f"{path}: " in message
    assert words in message
    assert "evaluat" not in message, "a rule that fails itself is no answer"
    # The local manifest says the same.
    parse_manifests(yaml.safe_dump(good))
    with pytest.raises(ManifestError):
        parse_manifests(yaml.safe_dump(bad))


def test_each_rule_has_its_examples() -> None:
    tried = [words for *_, words in CASES] + [words for _, words in NAMES] + [IMMUTABLE]
    rules = {
        rule["message"]
        for path in (ROOT / "crds").glob("*.yaml")
        for rule in rules_of(yaml.safe_load(path.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    }
    assert [message for message in sorted(rules) if not any(words in message for words in tried)] == []


def rules_of(schema: Any) -> list[dict[str, str]]:
    below = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    own: list[dict[str, str]] = schema.get("x-kubernetes-validations", [])
    return own + [rule for each in below for rule in rules_of(each)]


@pytest.mark.parametrize(("name", "words"), NAMES)
@pytest.mark.parametrize("document", [JOB_QUEUE, DOWNSTREAM], ids=["JobQueue", "DownstreamCapacity"])
def test_a_name_is_a_label(dry: Resources, document: Any, name: str, words: str) -> None:
    dry.create(document | {"metadata": {"name": "a" * 63}})
    assert words in refusal(dry, document | {"metadata": {"name": name}})


@pytest.mark.parametrize("field", ["database", "image"])
def test_a_cluster_needs_what_one_machine_does_not(dry: Resources, field: str) -> None:
    document = copy.deepcopy(JOB_QUEUE)
    del document["spec"][field]
    assert f"spec.{field}: Required value" in refusal(dry, document)
    parse_manifests(yaml.safe_dump(document))


def test_the_schema_of_the_database_stays(resources: Resources) -> None:
    resources.create(JOB_QUEUE, dry=False)
    for changed in ({"schema": "other"}, {"schema": "jobqueue2"}):
        with pytest.raises(Refused) as caught:
            resources.change("JobQueue", "shop", {"database": changed})
        assert "spec.database.schema: " in caught.value.message
        assert IMMUTABLE in caught.value.message
    resources.change("JobQueue", "shop", {"database": {"schema": None}})  # back to the default, which it is
    kept = resources.change("JobQueue", "shop", {"database": {"schema": "jobqueue", "workerSecretRef": {"name": "w2"}}})
    assert kept["spec"]["database"]["workerSecretRef"] == {"name": "w2"}, "logins rotate"


def test_a_class_may_lean_on_another_downstream(resources: Resources) -> None:
    resources.create(queue_of("capacity", REF), dry=False)
    moved = {"name": "email", "timeout": "30s", "capacity": {"ref": {"name": "other-db"}}}
    kept = resources.change("JobQueue", "shop", {"classes": [moved]})
    assert kept["spec"]["classes"][0]["capacity"]["ref"] == {"name": "other-db"}


def test_several_things_wrong_are_all_said(dry: Resources) -> None:
    wrong = {"replicas": {"min": 3, "max": 2}, "lease": {"heartbeat": "1m"}, "drain": {"timeout": "1d"}}
    message = refusal(dry, queue("classes", [{"name": "email", "timeout": "30s", **wrong}]))
    for field in ("replicas.min", "lease.duration", "drain.timeout"):
        assert f"{CLASS}.{field}: " in message


def test_what_is_no_duration_is_said_once_and_disturbs_no_other_rule(dry: Resources) -> None:
    wrong = {
        "timeout": "soon",
        "lease": {"duration": "long", "heartbeat": ""},
        "drain": {"timeout": "3", "maxGrace": ""},
    }
    wrong |= {"retry": {"backoff": {"initial": "x", "max": "99999d"}}}
    message = refusal(dry, queue("classes", [{"name": "email", **wrong}]))
    assert message.count("is not a duration from") == 7
    assert "evaluat" not in message
    for rule in ("lease.duration is shorter", "is above drain.maxGrace", "initial is above max"):
        assert rule not in message
