from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import helm_python
import pytest

from chart import documented
from services.helm import CHART, Release, render

if TYPE_CHECKING:
    from collections.abc import Callable

DIGEST = "sha256:" + "0123456789abcdef" * 4


@dataclass(frozen=True)
class Switch:
    """A value that is not the default, and what of the release it changes into what."""

    key: str
    value: Any
    seen: Callable[[Release], Any]
    expected: Any
    others: dict[str, Any] = field(default_factory=dict)
    """Values without which this one has no effect."""


def names(kind: str) -> Callable[[Release], list[str]]:
    return lambda release: [each["metadata"]["name"] for each in release.of(kind)]


def places(kind: str) -> Callable[[Release], list[tuple[str, str]]]:
    return lambda release: [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in release.of(kind)]


def variable(name: str) -> Callable[[Release], Any]:
    return lambda release: release.environment.get(f"JOBQUEUE_OPERATOR_{name}")


def pod(key: str) -> Callable[[Release], Any]:
    return lambda release: release.pod.get(key)


def pod_metadata(key: str, name: str) -> Callable[[Release], Any]:
    return lambda release: release.one("Deployment")["spec"]["template"]["metadata"].get(key, {}).get(name)


def probe(name: str) -> Callable[[Release], Any]:
    return lambda release: {**release.container[name], "httpGet": None}


def label(kind: str, name: str) -> Callable[[Release], Any]:
    return lambda release: release.one(kind)["metadata"]["labels"].get(name)


def spread(release: Release) -> list[str]:
    return [each["topologyKey"] for each in release.pod["topologySpreadConstraints"]]


def first_endpoint(kind: str, endpoints: str) -> Callable[[Release], Any]:
    return lambda release: release.one(kind)["spec"][endpoints][0]["interval"]


def ports_out(release: Release) -> list[int]:
    return [port["port"] for rule in release.one("NetworkPolicy")["spec"]["egress"] for port in rule["ports"]]


ON, OFF = True, False
PEER = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
TOLERATION = {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}
AFFINITY: dict[str, Any] = {
    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
}
ZONE = {"maxSkew": 2, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}

SWITCHES = [
    Switch("image.repository", "registry.example/jq", lambda r: r.container["image"], "registry.example/jq:0.1.0"),
    Switch("image.tag", "1.2.3", lambda r: r.container["image"], "jobqueue-operator:1.2.3"),
    Switch("image.digest", DIGEST, lambda r: r.container["image"], f"jobqueue-operator@{DIGEST}"),
    Switch("image.pullPolicy", "Always", lambda r: r.container["imagePullPolicy"], "Always"),
    Switch("imagePullSecrets", [{"name": "login"}], pod("imagePullSecrets"), [{"name": "login"}]),
    Switch("nameOverride", "queues", names("Deployment"), ["jq-queues"]),
    Switch("fullnameOverride", "queues", names("Deployment"), ["queues"]),
    Switch("commonLabels", {"team": "shop"}, label("Service", "team"), "shop"),
    Switch("namespaces", ["a", "b"], variable("NAMESPACES"), "a,b"),
    Switch("crds.enabled", OFF, names("CustomResourceDefinition"), []),
    Switch("rbac.create", OFF, lambda r: r.of("RoleBinding", "ClusterRoleBinding"), []),
    Switch("rbac.aggregate", OFF, names("ClusterRole"), ["jq-jobqueue-operator", "jq-jobqueue-operator-secrets"]),
    Switch(
        "secrets.namespaces",
        ["shop"],
        places("RoleBinding"),
        [("shop", "jq-jobqueue-operator-secrets"), ("ops", "jq-jobqueue-operator-lease")],
    ),
    Switch(
        "secrets.clusterWide",
        ON,
        names("ClusterRoleBinding"),
        ["jq-jobqueue-operator", "jq-jobqueue-operator-secrets"],
    ),
    Switch("serviceAccount.create", OFF, names("ServiceAccount"), [], {"serviceAccount": {"name": "theirs"}}),
    Switch("serviceAccount.name", "mine", pod("serviceAccountName"), "mine"),
    Switch(
        "serviceAccount.annotations",
        {"cloud.example/role": "jobqueue"},
        lambda r: r.one("ServiceAccount")["metadata"].get("annotations"),
        {"cloud.example/role": "jobqueue"},
    ),
    Switch("replicas", 2, lambda r: r.one("Deployment")["spec"]["replicas"], 2),
    Switch("leaderElection.enabled", OFF, variable("STANDALONE"), "true"),
    Switch("tickSeconds", 2.5, variable("TICK"), "2.5"),
    Switch("lostPodTimeoutSeconds", 86_400, variable("LOST_POD_TIMEOUT"), "86400"),
    Switch("logLevel", "debug", variable("LOG_LEVEL"), "debug"),
    Switch("logFormat", "console", variable("LOG_FORMAT"), "console"),
    Switch("allowHosts", ["127.0.0.1", "db"], variable("ALLOW_HOSTS"), "127.0.0.1,db"),
    Switch("migrate", ON, variable("MIGRATE"), "true"),
    Switch("workers.networkPolicy", ON, variable("NETWORK_POLICY"), "true"),
    Switch(
        "resources",
        {"limits": {"memory": "1Gi"}},
        lambda r: r.container["resources"],
        {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
    ),
    Switch("extraEnv", [{"name": "TZ", "value": "UTC"}], lambda r: r.environment.get("TZ"), "UTC"),
    Switch("podSecurityContext", {"runAsUser": 1000}, lambda r: r.pod["securityContext"]["runAsUser"], 1000),
    Switch("securityContext", {"runAsUser": 1000}, lambda r: r.container["securityContext"].get("runAsUser"), 1000),
    Switch(
        "livenessProbe",
        {"failureThreshold": 9},
        probe("livenessProbe"),
        {"httpGet": None, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 9},
    ),
    Switch(
        "readinessProbe",
        {"initialDelaySeconds": 2},
        probe("readinessProbe"),
        {"httpGet": None, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3, "initialDelaySeconds": 2},
    ),
    Switch("terminationGracePeriodSeconds", 90, pod("terminationGracePeriodSeconds"), 90),
    Switch("priorityClassName", "system-cluster-critical", pod("priorityClassName"), "system-cluster-critical"),
    Switch("nodeSelector", {"pool": "system"}, pod("nodeSelector"), {"pool": "system"}),
    Switch("tolerations", [TOLERATION], pod("tolerations"), [TOLERATION]),
    Switch("affinity", AFFINITY, pod("affinity"), AFFINITY),
    Switch("topologySpreadConstraints", [ZONE], spread, ["topology.kubernetes.io/zone"]),
    Switch("podAnnotations", {"note": "x"}, pod_metadata("annotations", "note"), "x"),
    Switch("podLabels", {"team": "shop"}, pod_metadata("labels", "team"), "shop"),
    Switch("podDisruptionBudget.enabled", OFF, lambda r: r.of("PodDisruptionBudget"), []),
    Switch("networkPolicy.enabled", ON, names("NetworkPolicy"), ["jq-jobqueue-operator"]),
    Switch(
        "networkPolicy.ingressFrom",
        [PEER],
        lambda r: r.one("NetworkPolicy")["spec"]["ingress"][0].get("from", [])[:1],
        [PEER],
        {"networkPolicy": {"enabled": True}},
    ),
    Switch("networkPolicy.egressPorts", [6443], ports_out, [53, 53, 6443], {"networkPolicy": {"enabled": True}}),
    Switch("monitoring.serviceMonitor.enabled", OFF, lambda r: r.of("ServiceMonitor"), []),
    Switch("monitoring.serviceMonitor.interval", "1m", first_endpoint("ServiceMonitor", "endpoints"), "1m"),
    Switch("monitoring.serviceMonitor.labels", {"release": "p"}, label("ServiceMonitor", "release"), "p"),
    Switch("monitoring.podMonitor.enabled", OFF, lambda r: r.of("PodMonitor"), []),
    Switch("monitoring.podMonitor.interval", "1m", first_endpoint("PodMonitor", "podMetricsEndpoints"), "1m"),
    Switch("monitoring.podMonitor.labels", {"release": "p"}, label("PodMonitor", "release"), "p"),
]


def nested(key: str, value: Any) -> dict[str, Any]:
    """Return values with one entry: `a.b` and 1 is {"a": {"b": 1}}."""
    for part in reversed(key.split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return value


def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    both = {key: merged(under[key], over[key]) for key in under.keys() & over.keys()}
    return under | over | both


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda each: each.key)
def test_a_value_does_what_it_says(switch: Switch) -> None:
    assert switch.seen(render(merged(switch.others, nested(switch.key, switch.value)))) == switch.expected
    assert switch.seen(render(switch.others)) != switch.expected  # or the above shows nothing


def test_every_documented_value_is_switched() -> None:
    assert {each.key for each in documented.values()} - {each.key for each in SWITCHES} == set()


def test_every_value_is_documented() -> None:
    assert [each.key for each in documented.values() if not each.text] == []


def test_the_readme_has_todays_values() -> None:
    readme = documented.README.read_text()
    assert documented.renewed(readme) == readme, "run: python tests/chart/documented.py"


def test_the_documentation_of_a_value_is_the_comment_above_it() -> None:
    found = {each.key: each for each in documented.values()}
    text = "Seconds between two decisions about every class, 1 to 10."
    assert found["tickSeconds"] == documented.Value("tickSeconds", 5, text)
    assert found["image.digest"].text == "A digest, `sha256:…`; it wins over the tag."
    assert found["resources"].default["limits"] == {"memory": "512Mi"}
    assert "resources.limits" not in found


def schema_of(schema: dict[str, Any], key: str) -> dict[str, Any]:
    for part in key.split("."):
        schema = schema["properties"][part]
        if "$ref" in schema:
            schema = SCHEMA["definitions"][schema["$ref"].rsplit("/", 1)[1]]
    return schema


SCHEMA: dict[str, Any] = helm_python.Chart.load(CHART).schema or {}


@pytest.mark.parametrize("key", [each.key for each in documented.values()])
def test_the_schema_knows_every_value(key: str) -> None:
    assert schema_of(SCHEMA, key)


def test_the_schema_knows_nothing_else() -> None:
    known = {each.key.split(".")[0] for each in documented.values()} | {"global"}
    assert set(SCHEMA["properties"]) == known


REFUSED = [
    ("replica", 2, "'replica' not allowed"),
    ("image.tg", "x", "'/image': additional properties 'tg' not allowed"),
    ("crds.install", True, "'/crds'"),
    ("replicas", 3, "'/replicas'"),
    ("replicas", 0, "'/replicas'"),
    ("replicas", "2", "'/replicas'"),
    ("image.digest", "sha256:abc", "'/image/digest'"),
    ("image.tag", 1.5, "'/image/tag'"),
    ("image.repository", "jobqueue-operator@" + DIGEST, "'/image/repository'"),
    ("image.pullPolicy", "always", "'/image/pullPolicy'"),
    ("imagePullSecrets", ["login"], "'/imagePullSecrets/0'"),
    ("namespaces", "a", "'/namespaces'"),
    ("namespaces", ["a", "a"], "'/namespaces'"),
    ("namespaces", ["a*"], "'/namespaces/0'"),
    ("secrets.namespaces", ["*"], "'/secrets/namespaces/0'"),
    ("secrets.clusterWide", "false", "'/secrets/clusterWide'"),
    ("rbac.aggregate", "no", "'/rbac/aggregate'"),
    ("fullnameOverride", "Queues", "'/fullnameOverride'"),
    ("tickSeconds", 0.5, "'/tickSeconds'"),
    ("tickSeconds", "5s", "'/tickSeconds'"),
    ("lostPodTimeoutSeconds", "10m", "'/lostPodTimeoutSeconds'"),
    ("logLevel", "verbose", "'/logLevel'"),
    ("allowHosts", ["a,b"], "'/allowHosts/0'"),
    ("extraEnv", [{"value": "x"}], "'/extraEnv/0'"),
    ("extraEnv", {"TZ": "UTC"}, "'/extraEnv'"),
    ("resources.limit", {"memory": "1Gi"}, "'/resources'"),
    ("livenessProbe.httpGet", {"path": "/"}, "'/livenessProbe'"),
    ("podLabels", {"a": 1}, "'/podLabels/a'"),
    ("affinity.podAffinty", {}, "'/affinity'"),
    ("networkPolicy.egressPorts", [70000], "'/networkPolicy/egressPorts/0'"),
    ("monitoring.serviceMonitor.interval", "15", "'/monitoring/serviceMonitor/interval'"),
]


@pytest.mark.parametrize(("key", "value", "named"), REFUSED)
def test_the_schema_refuses_a_wrong_value_by_name(key: str, value: Any, named: str) -> None:
    with pytest.raises(helm_python.HelmValuesError) as refused:
        render(nested(key, value))
    assert named in str(refused.value)


CONTRADICTIONS = [
    ({"namespaces": ["a"], "secrets": {"clusterWide": True}}, "secrets.clusterWide"),
    ({"namespaces": ["a"], "secrets": {"namespaces": ["b"]}}, "secrets.namespaces"),
    ({"replicas": 2, "leaderElection": {"enabled": False}}, "leaderElection.enabled"),
    ({"serviceAccount": {"create": False}}, "serviceAccount.name"),
]


@pytest.mark.parametrize(("values", "named"), CONTRADICTIONS)
def test_values_that_contradict_each_other_are_refused(values: dict[str, Any], named: str) -> None:
    with pytest.raises(helm_python.HelmRenderError, match=named):
        render(values)
