"""A user's podTemplate over ours, by Kubernetes' merge keys."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobqueue_operator.planner.workload.merge import KEYS, merge

OURS: dict[str, Any] = {
    "metadata": {"labels": {"ours": "1"}},
    "spec": {
        "securityContext": {"runAsNonRoot": True, "sysctls": [1, 2]},
        "tolerations": [{"key": "ours"}],
        "containers": [
            {
                "name": "worker",
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [{"name": "health", "containerPort": 8080}],
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - a pod's
                "resources": {"requests": {"cpu": "50m"}},
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}],
    },
}


def worker(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "worker", **fields}]}}


@pytest.mark.parametrize(
    ("theirs", "place", "expected"),
    [
        ({"metadata": {"labels": {"a": "b"}}}, ("metadata", "labels"), {"ours": "1", "a": "b"}),
        ({"metadata": {"annotations": {"a": "b"}}}, ("metadata", "annotations"), {"a": "b"}),
        ({"spec": {"securityContext": {"runAsNonRoot": None}}}, ("spec", "securityContext"), {"sysctls": [1, 2]}),
        ({"spec": {"securityContext": {"sysctls": [3]}}}, ("spec", "securityContext", "sysctls"), [3]),
        ({"spec": {"securityContext": None}}, ("spec", "securityContext"), None),
        ({"spec": {"tolerations": [{"key": "b"}]}}, ("spec", "tolerations"), [{"key": "ours"}, {"key": "b"}]),
        ({"spec": {"nodeSelector": {"a": "b", "c": None}}}, ("spec", "nodeSelector"), {"a": "b"}),
        (worker(env=[{"name": "B", "valueFrom": {}}]), ("env", 1), {"name": "B", "valueFrom": {}}),
        (worker(env=[{"name": "C", "value": "3"}]), ("env", 0), {"name": "A", "value": "1"}),
        (worker(env=[{"name": "C", "value": "3"}]), ("env", 2), {"name": "C", "value": "3"}),
        (worker(env=None), ("env",), None),
        (worker(ports=[{"containerPort": 9000}]), ("ports", 1), {"containerPort": 9000}),
        (worker(ports=[{"containerPort": 8080, "x": 1}]), ("ports", 0, "name"), "health"),
        (worker(volumeMounts=[{"mountPath": "/tmp", "name": "x"}]), ("volumeMounts", 0, "name"), "x"),  # noqa: S108
        (worker(resources={"limits": {"memory": "1Gi"}}), ("resources", "requests"), {"cpu": "50m"}),
        (worker(resources={"requests": {"cpu": "2"}}), ("resources", "requests"), {"cpu": "2"}),
        (worker(command=["a", "b"]), ("command",), ["a", "b"]),
        ({"spec": {"containers": [{"name": "proxy", "x": None}]}}, ("spec", "containers", 1), {"name": "proxy"}),
        (
            {"spec": {"volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory"}}]}},
            ("spec", "volumes", 0, "emptyDir"),
            {"sizeLimit": "1Gi", "medium": "Memory"},
        ),
        (
            {"spec": {"volumes": [{"name": "tmp", "ephemeral": {}}]}},
            ("spec", "volumes", 0),
            {"name": "tmp", "ephemeral": {}},
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_becomes_of_a_field(theirs: Any, place: tuple[str | int, ...], expected: Any) -> None:
    ours, before = copy.deepcopy(OURS), copy.deepcopy(theirs)
    found: Any = merge(ours, theirs)
    if place[0] not in {"spec", "metadata"}:
        found = found["spec"]["containers"][0]
    for step in place:
        found = found.get(step) if isinstance(found, dict) else found[step]
    assert found == expected
    assert (ours, theirs) == (OURS, before), "neither is changed"


def test_a_toleration_that_is_there_is_not_added_again() -> None:
    assert merge([{"key": "a"}], [{"key": "a"}, {"key": "b"}], "tolerations") == [{"key": "a"}, {"key": "b"}]


WORDS = ["worker", "name", "spec", "containers", "env", "volumes", "ports", "tolerations", *KEYS.values(), "x"]
PLAIN = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(WORDS) | st.floats(allow_nan=False)
VALUES: st.SearchStrategy[Any] = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5)
        | st.lists(st.fixed_dictionaries({"name": st.sampled_from(WORDS), "x": inner}), max_size=4)
        | st.fixed_dictionaries({"containers": st.lists(st.fixed_dictionaries({"name": st.just("w"), "env": inner}))})
    ),
    max_leaves=25,
)


@settings(max_examples=250, deadline=None)
@given(VALUES, VALUES)
def test_any_values_merge_and_merging_again_changes_nothing(ours: Any, theirs: Any) -> None:
    before = copy.deepcopy((ours, theirs))
    once = merge(ours, theirs)
    assert merge(once, theirs) == once
    assert (ours, theirs) == before


@settings(max_examples=50, deadline=None)
@given(VALUES)
def test_an_empty_mapping_changes_nothing_of_ours(theirs: Any) -> None:
    assert merge(OURS, {}) == OURS
    assert merge({}, theirs) == merge(None, theirs)
