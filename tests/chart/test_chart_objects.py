from __future__ import annotations

import re
import tomllib
from typing import Any

import helm_python
import pytest

from jobqueue_operator.cluster import settings
from jobqueue_operator.planner.workload import names
from services.helm import CHART, CLUSTER_SCOPED, Release, render
from services.restricted import violations

FULL: dict[str, Any] = {
    "secrets": {"namespaces": ["shop"], "clusterWide": True},
    "networkPolicy": {"enabled": True, "ingressFrom": [{"podSelector": {}}]},
    "workers": {"networkPolicy": True},
    "replicas": 2,
}
"""Values with which every template says something, in cluster mode."""
MODES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "full": FULL,
    "namespaced": {"namespaces": ["shop", "mail"], "networkPolicy": {"enabled": True}},
}
RECOMMENDED = {
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/component",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
}
LONGEST = "a-release-name-of-fifty-three-characters-that-helm-takes"[:53]
OVERLONG = "an-override-that-somebody-made-longer-than-a-name-may-be-in-dns-ever"


@pytest.mark.parametrize("mode", MODES)
def test_lint_finds_nothing(mode: str) -> None:
    report = helm_python.lint(CHART, MODES[mode], strict=True, namespace="ops", kube_version="v1.29.0")
    assert report["errors"] == []
    # The chart has no picture.
    assert [each["error"] for each in report["messages"]] == ["icon is recommended"]


def test_the_chart_is_of_the_version_of_the_project() -> None:
    project = tomllib.loads((CHART.parents[1] / "pyproject.toml").read_text())["project"]
    metadata = helm_python.Chart.load(CHART).metadata
    assert (metadata["version"], metadata["appVersion"]) == (project["version"], project["version"])


def test_every_template_says_something_in_some_mode() -> None:
    templates = {each["name"] for each in helm_python.Chart.load(CHART).templates if each["name"].endswith(".yaml")}
    assert {
        each.removeprefix("jobqueue-operator/") for mode in MODES for each in render(MODES[mode]).spoken
    } == templates


def ours(release: Release) -> list[dict[str, Any]]:
    """Return the operator's objects; the CRDs are the API's, the same as in crds/, and outlive the release."""
    return [each for each in release.objects if each["kind"] != "CustomResourceDefinition"]


@pytest.mark.parametrize("mode", MODES)
def test_all_objects_carry_the_recommended_labels(mode: str) -> None:
    for each in ours(render(MODES[mode])):
        labels = each["metadata"]["labels"]
        assert set(labels) >= RECOMMENDED, each["kind"]
        assert labels["app.kubernetes.io/instance"] == "jq"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"


@pytest.mark.parametrize("mode", MODES)
def test_objects_say_their_namespace_unless_they_have_none(mode: str) -> None:
    for each in render(MODES[mode]).objects:
        assert ("namespace" in each["metadata"]) == (each["kind"] not in CLUSTER_SCOPED), each["kind"]


@pytest.mark.parametrize("mode", MODES)
def test_no_two_objects_are_the_same(mode: str) -> None:
    found = [
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        for each in render(MODES[mode]).objects
    ]
    assert sorted(set(found), key=str) == sorted(found, key=str)


@pytest.mark.parametrize("values", [FULL, {**FULL, "fullnameOverride": OVERLONG}, {**FULL, "nameOverride": OVERLONG}])
def test_names_and_labels_are_cut_to_what_kubernetes_takes(values: dict[str, Any]) -> None:
    release = render(values, name=LONGEST)
    for each in ours(release):
        assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", each["metadata"]["name"])
        for text in each["metadata"]["labels"].values():
            assert re.fullmatch(r"([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?", text)


def test_two_long_releases_have_names_of_their_own() -> None:
    first, second = (render(FULL, name=LONGEST[:-1] + last) for last in "xy")
    taken = [{(each["kind"], each["metadata"]["name"]) for each in ours(release)} for release in (first, second)]
    assert taken[0] & taken[1] == set()


def test_names_that_look_like_numbers_stay_text() -> None:
    release = render({"namespaces": ["10", "0x1f"]}, name="1e3", namespace="007")
    for each in ours(release):
        assert isinstance(each["metadata"]["namespace"], str)
        assert each["metadata"]["labels"]["app.kubernetes.io/instance"] == "1e3"
    assert {each["metadata"]["namespace"] for each in release.of("Role")} == {"10", "0x1f", "007"}
    assert release.environment["JOBQUEUE_OPERATOR_LEASE_NAMESPACE"] == "007"


def test_the_recommended_labels_win_over_the_users() -> None:
    theirs = {"app.kubernetes.io/name": "mine", "team": "shop"}
    release = render({"commonLabels": theirs, "podLabels": {**theirs, "team": "mail"}})
    template = release.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert template["team"] == "mail"
    assert release.one("Deployment")["spec"]["selector"]["matchLabels"].items() <= template.items()


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


@pytest.mark.parametrize("values", [FULL, {**FULL, "nameOverride": "queues", "commonLabels": {"team": "shop"}}])
def test_selectors_select_the_operator_and_not_the_test(values: dict[str, Any]) -> None:
    release = render(values)
    operator = release.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    test = release.one("Pod")["metadata"]["labels"]
    spread = release.pod["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"]
    for selector in (
        release.one("Deployment")["spec"]["selector"]["matchLabels"],
        release.one("Service")["spec"]["selector"],
        release.one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        release.one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        spread,
    ):
        assert selects(selector, operator)
        assert not selects(selector, test)
    assert selects(
        release.one("ServiceMonitor")["spec"]["selector"]["matchLabels"], release.one("Service")["metadata"]["labels"]
    )
    (_, own_test) = release.one("NetworkPolicy")["spec"]["ingress"][0]["from"]
    assert selects(own_test["podSelector"]["matchLabels"], test)


def test_a_spread_constraint_with_a_selector_keeps_it() -> None:
    mine = {"matchLabels": {"team": "shop"}}
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    release = render({"topologySpreadConstraints": [{**constraint, "labelSelector": mine}, constraint]})
    first, second = release.pod["topologySpreadConstraints"]
    assert first["labelSelector"] == mine
    assert second["labelSelector"]["matchLabels"]["app.kubernetes.io/instance"] == "jq"


def test_a_digest_wins_over_a_tag() -> None:
    digest = "sha256:" + "ab" * 32
    release = render({"image": {"tag": "1.2.3", "digest": digest}})
    assert release.container["image"] == f"jobqueue-operator@{digest}"
    assert release.one("Pod")["spec"]["containers"][0]["image"] == f"jobqueue-operator@{digest}"


@pytest.mark.parametrize("replicas", [1, 2])
def test_one_of_several_acts(replicas: int) -> None:
    release = render({"replicas": replicas})
    assert release.environment["JOBQUEUE_OPERATOR_LEASE_NAMESPACE"] == "ops"
    assert release.environment["JOBQUEUE_OPERATOR_LEASE_NAME"] == "jq-jobqueue-operator"
    assert release.environment["JOBQUEUE_OPERATOR_IDENTITY"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert "JOBQUEUE_OPERATOR_STANDALONE" not in release.environment
    assert release.one("Deployment")["spec"]["strategy"]["type"] == "RollingUpdate"


def test_without_a_lease_the_old_operator_is_gone_before_the_new_one_starts() -> None:
    release = render({"leaderElection": {"enabled": False}})
    assert release.one("Deployment")["spec"]["strategy"] == {"type": "Recreate"}
    assert not {name for name in release.environment if "LEASE" in name or "IDENTITY" in name}


def test_every_variable_is_set_once() -> None:
    names = [each["name"] for each in render(FULL).container["env"]]
    assert sorted(set(names)) == sorted(names)


VARIABLES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"places": (None,), "tick": 5.0, "lease_namespace": "ops", "identity": "jq-0", "standalone": False}),
    (FULL, {"network_policy": True, "lost_pod_timeout": 600.0, "log_level": "info", "log_format": "json"}),
    ({"namespaces": ["shop", "mail"], "tickSeconds": 2.5}, {"places": ("mail", "shop"), "tick": 2.5}),
    ({"leaderElection": {"enabled": False}, "migrate": True}, {"standalone": True, "migrate": True}),
    ({"allowHosts": ["127.0.0.1", "db"]}, {"allowed_hosts": frozenset({"127.0.0.1", "db"})}),
]


@pytest.mark.parametrize(("values", "expected"), VARIABLES)
def test_the_operator_reads_its_variables(
    values: dict[str, Any], expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = render(values).environment
    known = {f"JOBQUEUE_OPERATOR_{field.upper()}" for field in settings.OperatorSettings.model_fields}
    assert set(variables) <= known
    for name, value in variables.items():
        monkeypatch.setenv(name, value if isinstance(value, str) else "jq-0")
    read = settings.load()
    assert {name: getattr(read, name) for name in expected} == expected


def test_probes_ask_the_health_port() -> None:
    container = render().container
    assert container["ports"] == [{"name": "health", "containerPort": 8080, "protocol": "TCP"}]
    assert container["livenessProbe"]["httpGet"] == {"path": "/live", "port": "health"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "health"}
    assert render().environment["JOBQUEUE_OPERATOR_HEALTH_PORT"] == "8080"


def test_the_crds_are_kept_when_the_release_goes() -> None:
    metadata = [each["metadata"] for each in render().of("CustomResourceDefinition")]
    assert [each["name"] for each in metadata] == ["downstreamcapacities.jobqueue.dev", "jobqueues.jobqueue.dev"]
    assert [each["annotations"]["helm.sh/resource-policy"] for each in metadata] == ["keep", "keep"]


@pytest.mark.parametrize("mode", MODES)
def test_pods_fit_the_restricted_profile_and_write_to_volumes_alone(mode: str) -> None:
    release = render(MODES[mode])
    for spec in (release.pod, release.one("Pod")["spec"]):
        assert violations(spec) == []
        assert all(each["securityContext"]["readOnlyRootFilesystem"] for each in spec["containers"])
    assert [each["name"] for each in release.container["volumeMounts"]] == ["tmp"]


def test_a_budget_never_blocks_the_drain_of_a_node() -> None:
    spec = render().one("PodDisruptionBudget")["spec"]
    assert spec["maxUnavailable"] == 1
    assert "minAvailable" not in spec


def test_only_the_operators_pods_mount_a_token() -> None:
    release = render()
    assert release.pod["automountServiceAccountToken"] is True
    assert release.one("ServiceAccount")["automountServiceAccountToken"] is False
    assert release.one("Pod")["spec"]["automountServiceAccountToken"] is False


def test_monitors_are_made_only_where_the_cluster_knows_them() -> None:
    assert [each["kind"] for each in render(knows=()).of("ServiceMonitor", "PodMonitor")] == []
    assert "knows no ServiceMonitor" in render(knows=()).notes
    assert "knows no ServiceMonitor" not in render().notes
    assert sorted(each["kind"] for each in render().of("ServiceMonitor", "PodMonitor")) == [
        "PodMonitor",
        "ServiceMonitor",
    ]


def test_workers_are_scraped_where_they_are_served() -> None:
    everywhere = render().one("PodMonitor")["spec"]
    assert everywhere["namespaceSelector"] == {"any": True}
    assert everywhere["podMetricsEndpoints"][0]["port"] == "health"
    assert selects(everywhere["selector"]["matchLabels"], names.class_labels("shop", "email"))
    some = render({"namespaces": ["shop", "mail"]}).one("PodMonitor")["spec"]
    assert some["namespaceSelector"] == {"matchNames": ["shop", "mail"]}


NOTES = [
    ({}, ["Cluster mode", "may get no Secret yet", "kubectl create rolebinding jq-jobqueue-operator-secrets"]),
    ({"secrets": {"namespaces": ["shop", "mail"]}}, ["Cluster mode", "may get Secrets in shop, mail, by name"]),
    ({"secrets": {"clusterWide": True}}, ["Cluster mode", "every Secret of the cluster"]),
    ({"namespaces": ["shop", "mail"]}, ["Namespaced mode", "in shop, mail", "may get Secrets there"]),
    ({"rbac": {"create": False}}, ["rbac.create is false"]),
    ({"crds": {"enabled": False}}, ["crds.enabled is false"]),
]


@pytest.mark.parametrize(("values", "said"), NOTES)
def test_the_notes_say_the_mode_what_may_be_read_and_what_to_type(values: dict[str, Any], said: list[str]) -> None:
    notes = render(values).notes
    for part in [*said, "kubectl create secret", "kubectl apply", "kubectl get jobqueues", "helm test jq -n ops"]:
        assert part in notes
    assert "\n\n\n" not in notes
    assert max(len(line) for line in notes.splitlines()) <= 120


def test_the_notes_of_other_modes_are_not_said() -> None:
    assert "rolebinding" not in render({"rbac": {"create": False}}).notes
    assert "leaves the CRDs" not in render({"crds": {"enabled": False}}).notes
    assert "Cluster mode" not in render({"namespaces": ["shop"]}).notes
