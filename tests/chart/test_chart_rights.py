from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from services.helm import CHART, CLUSTER_SCOPED, Release, render

if TYPE_CHECKING:
    from collections.abc import Iterator

MODES: dict[str, dict[str, Any]] = {
    "cluster": {},
    "cluster, some Secrets": {"secrets": {"namespaces": ["shop", "mail"]}},
    "cluster, all Secrets": {"secrets": {"clusterWide": True}},
    "cluster, network policies": {"workers": {"networkPolicy": True}},
    "namespaced": {"namespaces": ["shop", "ops"]},
    "namespaced, network policies": {"namespaces": ["shop"], "workers": {"networkPolicy": True}},
}
QUEUES = {"jobqueues", "downstreamcapacities"}
IN_A_NAMESPACE = {
    "jobqueue.dev/jobqueues": {"list", "watch"},
    "jobqueue.dev/downstreamcapacities": {"list", "watch"},
    "jobqueue.dev/jobqueues/status": {"patch"},
    "jobqueue.dev/downstreamcapacities/status": {"patch"},
    "apps/deployments": {"list", "watch", "create", "patch", "delete"},
    "/pods": {"list", "watch", "patch"},
    "/serviceaccounts": {"list", "watch", "create", "patch"},
    "policy/poddisruptionbudgets": {"list", "watch", "create", "patch", "delete"},
    "autoscaling/horizontalpodautoscalers": {"list", "watch"},
    "events.k8s.io/events": {"create"},
}
NETWORK_POLICIES = {"networking.k8s.io/networkpolicies": {"list", "watch", "create", "patch", "delete"}}
SECRETS = {"/secrets": {"get"}}
LEASE = {
    "coordination.k8s.io/leases": {"create"},
    "coordination.k8s.io/leases/jq-jobqueue-operator": {"get", "update"},
}


def granted(role: dict[str, Any]) -> dict[str, set[str]]:
    """Return `group/resource[/name]` → verbs."""
    found: dict[str, set[str]] = {}
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", [""]):
                    found.setdefault(f"{group}/{resource}/{name}".rstrip("/"), set()).update(rule["verbs"])
    return found


def held(release: Release) -> dict[str, dict[str, set[str]]]:
    """Return what the operator's ServiceAccount may do, by namespace; `*` is everywhere."""
    account = {"kind": "ServiceAccount", "name": release.pod["serviceAccountName"], "namespace": "ops"}
    found: dict[str, dict[str, set[str]]] = {}
    for binding in release.of("RoleBinding", "ClusterRoleBinding"):
        assert binding["subjects"] == [account]
        namespace = binding["metadata"].get("namespace", "*")
        for what, verbs in granted(_role(release, binding)).items():
            found.setdefault(namespace, {}).setdefault(what, set()).update(verbs)
    return found


def _role(release: Release, binding: dict[str, Any]) -> dict[str, Any]:
    reference = binding["roleRef"]
    places = {None} if reference["kind"] == "ClusterRole" else {binding["metadata"]["namespace"]}
    (role,) = [
        each
        for each in release.of(reference["kind"])
        if each["metadata"]["name"] == reference["name"] and each["metadata"].get("namespace") in places
    ]
    return role


def test_cluster_mode_holds_what_the_operator_uses_and_no_secret() -> None:
    assert held(render()) == {"*": IN_A_NAMESPACE, "ops": LEASE}


def test_secrets_are_read_where_the_values_say() -> None:
    found = held(render({"secrets": {"namespaces": ["shop", "mail"]}}))
    assert found == {"*": IN_A_NAMESPACE, "ops": LEASE, "shop": SECRETS, "mail": SECRETS}


def test_secrets_are_read_everywhere_only_when_asked() -> None:
    found = held(render({"secrets": {"clusterWide": True}}))
    assert found == {"*": IN_A_NAMESPACE | SECRETS, "ops": LEASE}


def test_namespaced_mode_holds_the_same_in_each_namespace_and_nothing_elsewhere() -> None:
    found = held(render({"namespaces": ["shop", "ops"]}))
    assert found == {"shop": IN_A_NAMESPACE | SECRETS, "ops": IN_A_NAMESPACE | SECRETS | LEASE}


@pytest.mark.parametrize(("mode", "place"), [({}, "*"), ({"namespaces": ["shop"]}, "shop")])
def test_network_policies_are_granted_only_when_they_are_made(mode: dict[str, Any], place: str) -> None:
    with_policies = held(render({**mode, "workers": {"networkPolicy": True}}))
    without = held(render(mode))
    assert with_policies[place] == without[place] | NETWORK_POLICIES


def test_without_a_lease_none_is_granted() -> None:
    assert set(held(render({"leaderElection": {"enabled": False}}))) == {"*"}


def test_the_readme_lists_every_right() -> None:
    rows = re.findall(r"^\| `([a-z0-9./]*/[a-z/]+)` \| ([a-z ]+) \|", (CHART / "README.md").read_text(), re.MULTILINE)
    found: dict[str, set[str]] = {}
    for mode in MODES.values():
        for rights in held(render(mode)).values():
            for what, verbs in rights.items():
                found.setdefault(re.sub(r"(definitions|leases)/.*", r"\1", what), set()).update(verbs)
    assert {what: set(verbs.split()) for what, verbs in rows} == found


@pytest.mark.parametrize("mode", ["namespaced", "namespaced, network policies"])
def test_namespaced_mode_makes_nothing_cluster_scoped(mode: str) -> None:
    release = render({**MODES[mode], "crds": {"enabled": False}})
    assert [each["metadata"]["name"] for each in release.of(*CLUSTER_SCOPED)] == []
    assert render(MODES[mode]).of("ClusterRole", "ClusterRoleBinding") == []


def rules(release: Release) -> Iterator[dict[str, Any]]:
    for role in release.of("Role", "ClusterRole"):
        yield from role["rules"]


@pytest.mark.parametrize("mode", MODES)
def test_no_right_has_a_wildcard(mode: str) -> None:
    for rule in rules(render(MODES[mode])):
        for part in ("apiGroups", "resources", "verbs", "resourceNames", "nonResourceURLs"):
            assert [text for text in rule.get(part, []) if "*" in text] == []


@pytest.mark.parametrize("mode", MODES)
def test_secrets_are_got_by_name_and_nothing_else(mode: str) -> None:
    found = [rule for rule in rules(render(MODES[mode])) if "secrets" in rule["resources"]]
    assert found
    assert all(rule == {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]} for rule in found)


def test_users_get_their_rights_by_aggregation() -> None:
    writes = {"create", "update", "patch", "delete", "deletecollection"}
    reads = {f"jobqueue.dev/{each}{part}": {"get", "list", "watch"} for each in QUEUES for part in ("", "/status")}
    expected = {
        "viewer": ({"view", "edit", "admin"}, reads),
        "editor": ({"edit", "admin"}, {"jobqueue.dev/jobqueues": writes}),
        "admin": ({"admin"}, {"jobqueue.dev/downstreamcapacities": writes}),
    }
    for suffix, (roles, rights) in expected.items():
        found = render().one("ClusterRole", f"jq-jobqueue-operator-{suffix}")
        prefix = "rbac.authorization.k8s.io/aggregate-to-"
        labels = {key: value for key, value in found["metadata"]["labels"].items() if key.startswith(prefix)}
        assert labels == dict.fromkeys((f"{prefix}{role}" for role in roles), "true")
        assert granted(found) == rights
