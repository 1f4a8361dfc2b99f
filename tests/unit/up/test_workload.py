from pathlib import Path

import pytest

from jobqueue_operator.manifest import ManifestError, parse_manifests
from jobqueue_operator.workload import Workload, settings, workload


def text(name: str, class_: str, extra: str = "") -> str:
    return f"""---
apiVersion: jobqueue.dev/v1alpha1
kind: JobQueue
metadata: {{name: {name}, namespace: shops}}
spec:
  app: shop.jobs:app
  classes:
  - {{name: {class_}, timeout: 30s, {extra}}}
"""


DOWNSTREAM = """---
apiVersion: jobqueue.dev/v1alpha1
kind: DownstreamCapacity
metadata: {name: db, namespace: shops}
spec: {units: 10}
"""


def load(manifest: str) -> Workload:
    return workload(parse_manifests(manifest), name="jobqueue.yaml")


def test_several_queues_share_a_database() -> None:
    found = load(text("one", "email") + text("two", "slow", "capacity: {ref: {name: db}}") + DOWNSTREAM)
    assert [c.name for c in found.classes] == ["email", "slow"]


@pytest.mark.parametrize(
    ("manifest", "line"),
    [
        (DOWNSTREAM, "jobqueue.yaml: holds no JobQueue; add one"),
        (
            text("one", "email") + text("two", "email"),
            "jobqueue.yaml: JobQueue two: spec.classes[0].name: JobQueue one has a class email already; rename one",
        ),
        (
            text("one", "email", "capacity: {ref: {name: db}}"),
            (
                "jobqueue.yaml: JobQueue one: spec.classes[0].capacity.ref: there is no DownstreamCapacity db of "
                "namespace shops in this file; add one, or leave capacity out"
            ),
        ),
        (
            text("one", "email", "capacity: {ref: {name: db, namespace: others}}") + DOWNSTREAM,
            (
                "jobqueue.yaml: JobQueue one: spec.classes[0].capacity.ref: there is no DownstreamCapacity db of "
                "namespace others in this file; it is in namespace shops: write ref.namespace"
            ),
        ),
    ],
)
def test_what_one_database_cannot_hold_is_refused(manifest: str, line: str) -> None:
    with pytest.raises(ManifestError) as caught:
        load(manifest)
    assert list(caught.value.problems) == [line]


def test_all_settings_are_written_so_that_a_field_taken_out_has_its_default_again(tmp_path: Path) -> None:
    file = tmp_path / "jobqueue.yaml"
    file.write_text(
        text("one", "email", "capacity: {ref: {name: db}, unitsPerJob: 2}, lease: {duration: 90s}") + DOWNSTREAM
    )
    limits, classes = settings(file, None)
    assert limits == {"shops/db": 10}
    assert classes["email"] == {
        "lease_seconds": 90.0,
        "timeout_seconds": 30.0,
        "max_attempts": 10,
        "backoff_initial_seconds": 2.0,
        "backoff_factor": 2.0,
        "backoff_max_seconds": 600.0,
        "concurrency": 10,
        "fair_tenants": False,
        "tenant_limit": None,
        "key_limit": 1,
        "downstream": "shops/db",
        "units_per_job": 2,
        "units_per_pod": 0,
        "target_age_seconds": 60.0,
        "done_retention_seconds": 604800.0,
        "dead_retention_seconds": 2592000.0,
        "paused": False,
    }
