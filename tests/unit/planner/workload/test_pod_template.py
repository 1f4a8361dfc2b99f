"""What is refused in a podTemplate: the field, the reason, the remedy; never an exception."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jobqueue.worker.settings import WorkerSettings
from jobqueue_operator.planner import workload
from jobqueue_operator.planner.workload import reserved
from services.restricted import violations
from unit.planner.workload import shop

DOCUMENTATION = Path(__file__).parents[4] / "docs" / "kubernetes.md"
AT = "spec.classes[0].podTemplate"
WORKER = f"{AT}.spec.containers[0]"


def said(template: Any, **fields: Any) -> list[str]:
    queue = shop.shop(email__podTemplate=template, **fields)
    return [str(each) for each in workload.problems(queue, queue.spec.classes[0])]


def worker(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "worker", **fields}]}}


def test_the_manifest_itself_is_fine() -> None:
    assert said(shop.MANIFEST["spec"]["classes"][0]["podTemplate"]) == []
    assert said({}) == []


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ({"status": {}}, f"{AT}.status: is not a field here; the fields are metadata, spec"),
        ({"metadata": {"name": "x"}}, f"{AT}.metadata.name: is not a field here; the fields are labels, annotations"),
        ({"metadata": {"labels": []}}, f"{AT}.metadata.labels: a list is not a mapping; write `name: value` below it"),
        ({"metadata": {"labels": {"a": 1}}}, f"{AT}.metadata.labels.a: a number is not text; put it in quotes"),
        ({"spec": 3}, f"{AT}.spec: a number is not a mapping; write the fields below it"),
        ({"spec": {"containers": {}}}, f"{AT}.spec.containers: a mapping is not a list; start each entry with '- '"),
        ({"spec": {"containers": ["worker"]}}, f"{WORKER}: text is not a mapping; write the fields below it"),
        ({"spec": {"containers": [None]}}, f"{WORKER}: is empty; write the entry or leave it out"),
        ({"spec": {"containers": [{}]}}, f"{WORKER}.name: is missing; entries here are told apart by their name"),
        ({"spec": {"containers": [{"name": 1}]}}, f"{WORKER}.name: a number is not text; put it in quotes"),
        (
            {"spec": {"containers": [{"name": "a"}, {"name": "a"}]}},
            f"{AT}.spec.containers[1].name: appears twice; keep one",
        ),
        (worker(env=[{"value": "x"}]), f"{WORKER}.env[0].name: is missing; entries here are told apart by their name"),
        (worker(env=[{"name": "A", "value": 5}]), f"{WORKER}.env[0].value: a number is not text; put it in quotes"),
        (worker(env=[{"name": "A", "value": True}]), f"{WORKER}.env[0].value: true or false is not text; put it in q"),
        (worker(env={"A": "b"}), f"{WORKER}.env: a mapping is not a list; start each entry with '- '"),
        (worker(image=1.5), f"{WORKER}.image: a number is not text; put it in quotes"),
        (worker(command="x"), f"{WORKER}.command: text is not a list; start each entry with '- '"),
        (
            worker(ports=[{"containerPort": "x"}]),
            f"{WORKER}.ports[0].containerPort: text is not a port; write e.g. 9000",
        ),
        (
            worker(ports=[{"containerPort": 0}]),
            f"{WORKER}.ports[0].containerPort: is not a port; write a number from 1",
        ),
        (worker(ports=[{"name": "x"}]), f"{WORKER}.ports[0].containerPort: is missing; entries here are told apart"),
        (worker(volumeMounts=[{"name": "x"}]), f"{WORKER}.volumeMounts[0].mountPath: is missing; entries here are"),
        (
            worker(volumeMounts=[{"mountPath": "/x", "readOnly": "yes"}]),
            f"{WORKER}.volumeMounts[0].readOnly: text is n",
        ),
        (
            worker(resources={"limits": {"cpu": True}}),
            f"{WORKER}.resources.limits.cpu: true or false is not a quantity",
        ),
        (worker(readinessProbe={"periodSeconds": "1"}), f"{WORKER}.readinessProbe.periodSeconds: text is not a whole"),
        (worker(readinessProbe={"periodSeconds": True}), f"{WORKER}.readinessProbe.periodSeconds: true or false is no"),
        (
            {"spec": {"tolerations": [1]}},
            f"{AT}.spec.tolerations[0]: a number is not a mapping; write the fields below",
        ),
        ({"spec": {"volumes": [{"$patch": "delete", "name": "x"}]}}, f"{AT}.spec.volumes[0].$patch: is a directive"),
        ({"spec": {"affinity": {"a": [{"$x": 1}]}}}, f"{AT}.spec.affinity.a[0].$x: is a directive, which is not read"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_wrong_form_is_said(template: Any, expected: str) -> None:
    (only,) = said(template)
    assert only.startswith(expected)


@pytest.mark.parametrize(
    ("template", "where", "words"),
    [
        ({"spec": {"restartPolicy": "Never"}}, f"{AT}.spec.restartPolicy", "is always Always"),
        (
            {"spec": {"terminationGracePeriodSeconds": 5}},
            f"{AT}.spec.terminationGracePeriodSeconds",
            "set drain.timeout",
        ),
        ({"spec": {"activeDeadlineSeconds": 5}}, f"{AT}.spec.activeDeadlineSeconds", "not for pods of a Deployment"),
        ({"spec": {"ephemeralContainers": []}}, f"{AT}.spec.ephemeralContainers", "kubectl debug"),
        ({"spec": {"volumes": [{"name": "run", "ephemeral": {}}]}}, f"{AT}.spec.volumes[0]", "preStop"),
        ({"spec": {"volumes": [{"name": "database", "x": {}}]}}, f"{AT}.spec.volumes[0]", "take another name"),
        ({"spec": {"volumes": [{"name": "broker", "x": {}}]}}, f"{AT}.spec.volumes[0]", "take another name"),
        (worker(args=["worker"]), f"{WORKER}.args", "set spec.app"),
        (worker(lifecycle={"preStop": {"sleep": {"seconds": 1}}}), f"{WORKER}.lifecycle.preStop", "drains the worker"),
        (worker(lifecycle={"stopSignal": "SIGINT"}), f"{WORKER}.lifecycle.stopSignal", "must be SIGTERM"),
        (worker(ports=[{"containerPort": 8080, "name": "x"}]), f"{WORKER}.ports[0]", "health port"),
        (worker(volumeMounts=[{"mountPath": "/run/jobqueue", "name": "x"}]), f"{WORKER}.volumeMounts[0]", "elsewhere"),
        (
            worker(volumeMounts=[{"mountPath": "/etc/jobqueue/broker", "name": "x"}]),
            f"{WORKER}.volumeMounts[0]",
            "else",
        ),
        (worker(readinessProbe={"httpGet": {"path": "/live"}}), f"{WORKER}.readinessProbe.httpGet", "its times alone"),
        (worker(readinessProbe={"exec": {"command": ["x"]}}), f"{WORKER}.readinessProbe.exec", "its times alone"),
        ({"metadata": {"labels": {"jobqueue.dev/queue": "x"}}}, f"{AT}.metadata.labels.jobqueue.dev/queue", "another"),
        ({"metadata": {"labels": {"jobqueue.dev/x": "x"}}}, f"{AT}.metadata.labels.jobqueue.dev/x", "another name"),
        ({"metadata": {"labels": {"pod-template-hash": "x"}}}, f"{AT}.metadata.labels.pod-template-hash", "own mark"),
        (
            {"metadata": {"annotations": {"jobqueue.dev/restarted-at": None}}},
            f"{AT}.metadata.annotations.jobqueue.dev/restarted-at",
            "own mark",
        ),
        *(
            (worker(env=[{"name": name, "value": "x"}]), f"{WORKER}.env[0]", f"is filled from the manifest; {remedy}")
            for name, remedy in reserved.VARIABLES.items()
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_the_operator_needs_cannot_be_changed(template: Any, where: str, words: str) -> None:
    (only,) = said(template)
    assert only.startswith(f"{where}: ")
    assert words in only
    assert ";" in only, "a reason and a remedy"


@pytest.mark.parametrize(
    ("template", "where"),
    [
        ({"metadata": None}, f"{AT}.metadata"),
        ({"metadata": {"labels": None}}, f"{AT}.metadata.labels"),
        ({"spec": None}, f"{AT}.spec"),
        ({"spec": {"containers": None}}, f"{AT}.spec.containers"),
        ({"spec": {"volumes": None}}, f"{AT}.spec.volumes"),
        (worker(env=None), f"{WORKER}.env"),
        (worker(args=None), f"{WORKER}.args"),
        (worker(ports=None), f"{WORKER}.ports"),
        (worker(lifecycle=None), f"{WORKER}.lifecycle"),
        (worker(volumeMounts=None), f"{WORKER}.volumeMounts"),
        (worker(readinessProbe=None), f"{WORKER}.readinessProbe"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_the_operator_needs_cannot_be_deleted(template: Any, where: str) -> None:
    assert said(template) == [f"{where}: null would delete what the worker needs; leave it out"]


@pytest.mark.parametrize(
    "template",
    [
        worker(command=["opentelemetry-instrument", "jobqueue"]),
        worker(image="registry.example/other:2", imagePullPolicy="Always"),
        worker(resources={"requests": {"cpu": 2, "memory": None}, "limits": {"memory": "1Gi"}}),
        worker(env=[{"name": "JOBQUEUE_LOG_LEVEL", "value": "debug"}, {"name": "JOBQUEUE_MAX_JOBS", "value": "9"}]),
        worker(envFrom=[{"configMapRef": {"name": "shop"}}]),
        worker(lifecycle={"postStart": {"exec": {"command": ["true"]}}}),
        worker(livenessProbe=None, startupProbe={"failureThreshold": 600}, readinessProbe={"periodSeconds": 5}),
        worker(volumeMounts=[{"mountPath": "/cache", "name": "cache"}], ports=[{"containerPort": 9000}]),
        worker(securityContext={"readOnlyRootFilesystem": False}),
        {"metadata": {"annotations": {"a": "b"}, "labels": {"team": "orders"}}},
        {"metadata": {"annotations": None}},
        {"spec": {"volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "20Gi"}}]}},
        {"spec": {"containers": [{"name": "proxy", "image": "x", "args": ["y"]}]}},
        {"spec": {"initContainers": [{"name": "proxy", "image": "x", "restartPolicy": "Always"}]}},
        {"spec": {"serviceAccountName": "shop", "nodeSelector": {"pool": "jobs"}, "imagePullSecrets": [{"name": "x"}]}},
        {"spec": {"topologySpreadConstraints": None, "restartPolicy": "Always"}},
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_may_be_changed(template: Any) -> None:
    assert said(template) == []


def test_the_documentations_example_is_taken() -> None:
    (example,) = re.findall(r"```yaml\n(podTemplate:.*?)```", DOCUMENTATION.read_text(), re.DOTALL)
    template = yaml.safe_load(example)["podTemplate"]
    assert said(template) == []
    assert shop.worker(shop.shop(email__podTemplate=template))["command"][-1] == "jobqueue"


def test_each_setting_of_the_worker_is_either_the_manifests_or_the_users() -> None:
    names = {"class_name": "class", "schema_name": "schema"}
    every = {f"JOBQUEUE_{names.get(name, name).upper()}" for name in WorkerSettings.model_fields}
    theirs = {
        f"JOBQUEUE_{name}" for name in ("PREFETCH", "MAX_JOBS", "MAX_MEMORY", "LOG_LEVEL", "LOG_FORMAT", "LOG_JOBS")
    }
    assert every - reserved.VARIABLES.keys() == theirs
    assert reserved.VARIABLES.keys() <= every


def test_a_spread_that_insists_keeps_its_selector() -> None:
    spread = [{"topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}]
    first, second = shop.pod(shop.shop(email__podTemplate={"spec": {"topologySpreadConstraints": spread}}))[
        "topologySpreadConstraints"
    ]
    assert first["whenUnsatisfiable"] == "DoNotSchedule"
    assert first["labelSelector"] == second["labelSelector"]


def test_a_cluster_needs_a_database_and_an_image_from_somewhere() -> None:
    assert said({}, image=None) == [
        "spec.image: names no image; write the one that your app is in, e.g. registry.example/shop-worker:1.0"
    ]
    assert said(worker(image="a"), image=None) == []
    assert said(worker(image=None))[0].startswith(f"{AT}.spec.containers: names no image; ")
    assert said({}, database=None)[0].startswith("spec.database: is missing; ")


def test_a_class_that_the_manifest_no_longer_has_is_named() -> None:
    gone = shop.shop(email__name="gone", email__podTemplate={"spec": 3}).spec.classes[0]
    (only,) = workload.problems(shop.shop(), gone)
    assert only.path == "class.gone.podTemplate.spec"


def test_what_is_nested_too_deeply_is_said() -> None:
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"a": deep}
    assert said({"spec": {"affinity": deep}}) == [f"{AT}: is nested more than 30 levels deep; flatten it"]


def test_problems_are_counted_and_name_no_value() -> None:
    many = [{"name": f"v{n}", "value": 123456789} for n in range(100)]
    found = said(worker(env=many))
    assert len(found) == 20
    assert "123456789" not in "".join(found)


def test_nothing_is_made_of_what_is_wrong() -> None:
    queue = shop.shop(email__podTemplate={"spec": 3})
    with pytest.raises(ValueError, match=r"podTemplate\.spec: a number is not a mapping"):
        shop.made(queue)


NAMES = [
    *(
        "worker",
        "proxy",
        "run",
        "tmp",
        "database",
        "/run/jobqueue",
        "JOBQUEUE_DSN",
        "A",
        "kubernetes.io/hostname",
    ),
    *("name", "value", "spec", "metadata", "labels", "annotations", "containers", "initContainers", "env", "envFrom"),
    *("ports", "containerPort", "volumes", "volumeMounts", "mountPath", "topologySpreadConstraints", "topologyKey"),
    *("lifecycle", "preStop", "readinessProbe", "httpGet", "args", "command", "image", "resources", "limits"),
    *("securityContext", "tolerations", "emptyDir", "restartPolicy", "$patch", "jobqueue.dev/class", ""),
]
PLAIN = st.none() | st.booleans() | st.integers(-1, 8080) | st.sampled_from([8080, 65536, 0]) | st.sampled_from(NAMES)
ANY: st.SearchStrategy[Any] = st.recursive(
    PLAIN | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES) | st.text(), inner, max_size=4),
    max_leaves=20,
)
CONTAINER = st.fixed_dictionaries(
    {"name": st.sampled_from(["worker", "worker", "proxy"])},
    optional={
        **dict.fromkeys(("args", "lifecycle", "readinessProbe", "securityContext", "volumeMounts", "image"), ANY),
        "env": st.lists(
            st.fixed_dictionaries({"name": st.sampled_from([*NAMES, *reserved.VARIABLES]), "value": PLAIN})
        ),
        "ports": st.lists(st.fixed_dictionaries({"containerPort": PLAIN})),
    },
)
SPEC = st.fixed_dictionaries(
    {},
    optional={"containers": st.lists(CONTAINER, max_size=3) | ANY, **dict.fromkeys(("volumes", "restartPolicy"), ANY)},
)
TEMPLATES = st.dictionaries(st.sampled_from(NAMES), ANY, max_size=4) | st.fixed_dictionaries(
    {}, optional={"spec": SPEC, "metadata": ANY}
)


@settings(max_examples=250, deadline=None)
@given(TEMPLATES)
def test_any_template_is_either_refused_with_words_or_leaves_what_the_operator_needs(template: Any) -> None:
    queue = shop.shop(email__podTemplate=template)
    spec = queue.spec.classes[0]
    found = workload.problems(queue, spec)
    if found:
        assert all(each.path and ";" in each.message for each in found)
        with pytest.raises(ValueError, match="podTemplate"):
            shop.made(queue)
        return
    one, plain = shop.made(queue), shop.made(shop.shop(email__podTemplate={}))
    made, ours = one.deployment["spec"]["template"], plain.deployment["spec"]["template"]
    assert one.deployment["spec"]["selector"]["matchLabels"].items() <= made["metadata"]["labels"].items()
    assert made["spec"]["terminationGracePeriodSeconds"] == one.grace
    for way in reserved.RULES:
        assert reserved.look(made, way) == reserved.look(ours, way)
    if not template.get("spec"):
        assert violations(made["spec"]) == []
