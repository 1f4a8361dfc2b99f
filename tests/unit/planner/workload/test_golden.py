"""Upgrading the operator does not roll out unchanged JobQueues: the same manifest makes the same objects."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING

from unit.planner.workload import shop

if TYPE_CHECKING:
    import pytest

GOLDEN = Path(__file__).with_name("shop.golden.yaml")


def test_the_objects_are_those_of_the_last_release(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(shop.__file__, run_name="__main__")
    assert capsys.readouterr().out == GOLDEN.read_text(), (
        "what is made of an unchanged manifest has changed. When its pod template has, every worker of every user is "
        "replaced at the next upgrade: say so in the changelog, then PYTHONPATH=worker_image:operator python "
        "tests/unit/planner/workload/shop.py > tests/unit/planner/workload/shop.golden.yaml"
    )
