from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]


def test_the_workflow_runs_targets_that_exist_and_actions_by_version() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yaml").read_text())
    assert workflow["jobs"].keys() == {"check", "test", "images", "e2e"}
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    for step in steps:
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+\.\d+\.\d+", step["uses"])
    targets = re.findall(r"make ([\w-]+)", " ".join(step.get("run", "") for step in steps))
    makefile = (ROOT / "Makefile").read_text()
    assert targets == ["check", "test", "images", "e2e"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
