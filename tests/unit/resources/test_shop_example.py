from __future__ import annotations

from pathlib import Path

import yaml

from jobqueue_operator.manifest import validate

MANIFEST = Path(__file__).parents[3] / "examples" / "shop" / "jobqueue.yaml"


def test_the_example_of_a_cluster_is_valid_and_names_its_image() -> None:
    manifest, problems = validate(yaml.safe_load(MANIFEST.read_text()))
    assert not problems
    assert manifest is not None
    assert yaml.safe_load(MANIFEST.read_text())["spec"]["image"] == "registry.example/shop-worker:1"
