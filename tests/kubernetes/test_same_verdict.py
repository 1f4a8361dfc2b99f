"""An API server and the local manifest give the same verdict, over drawn manifests."""

from __future__ import annotations

import copy
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from jobqueue_operator.manifest import ManifestError, parse_manifests
from services.drawn_manifests import manifests
from services.kubernetes import Refused

if TYPE_CHECKING:
    from services.custom_resources import Resources

LOCAL_ALONE = ("is not a cron expression", "is not a time zone", ": 2.0 is not a whole number", "bytes; use at most")
"""What no schema can say: cron beyond its five fields, the names of time zones, 2.0 where a whole number is due (JSON
cannot tell it from 2), and the size of a podTemplate."""
LEAST: dict[str, Any] = {
    "database": {"workerSecretRef": {"name": "w"}, "operatorSecretRef": {"name": "o"}},
    "image": "registry.example/shop-worker:1",
    "app": "shop.jobs:app",
    "classes": [{"name": "email", "timeout": "30s"}],
}


def problems(document: dict[str, Any]) -> list[str]:
    try:
        parse_manifests(yaml.safe_dump(document))
    except ManifestError as error:
        return list(error.problems)
    return []


def answer(resources: Resources, document: dict[str, Any]) -> str:
    try:
        resources.create(document)
    except Refused as refused:
        return str(refused)
    return ""


def test_drawn_manifests(dry: Resources) -> None:
    seen: Counter[tuple[bool, bool]] = Counter()

    @settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(manifests())
    def judge(document: dict[str, Any]) -> None:
        mine, theirs = problems(document), answer(dry, document)
        seen[bool(mine), bool(theirs)] += 1
        assert theirs[:5] in {"", "400: ", "422: "}, theirs
        assert "evaluat" not in theirs, "a rule failed itself"
        if not theirs:
            assert [line for line in mine if not any(words in line for words in LOCAL_ALONE)] == []
        if not mine:
            missing = [field for field in ("database", "image") if document["spec"].get(field) is None]
            assert not theirs or (missing and all(f"spec.{field}: Required value" in theirs for field in missing))

    judge()
    assert seen[False, False] > 60, seen
    assert seen[True, True] > 60, seen


@pytest.mark.parametrize(
    "wrong",
    [
        {"schedule": [{"cron": "61 * * * *", "for": "1h", "min": 1}]},
        {"schedule": [{"cron": "* * * * *", "timeZone": "Mars", "for": "1h", "min": 1}]},
        {"concurrency": 2.0},
        {"podTemplate": {"metadata": {"annotations": {"long": "a" * 65_536}}}},
    ],
    ids=["cron", "time zone", "2.0", "podTemplate"],
)
def test_what_only_the_local_manifest_refuses(dry: Resources, wrong: dict[str, Any]) -> None:
    spec = copy.deepcopy(LEAST)
    spec["classes"][0] |= wrong
    document = {"apiVersion": "jobqueue.dev/v1alpha1", "kind": "JobQueue", "metadata": {"name": "a"}, "spec": spec}
    assert answer(dry, document) == ""
    (line,) = problems(document)
    assert any(words in line for words in LOCAL_ALONE)
