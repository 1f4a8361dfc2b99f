"""An event is told once, when a condition changes; what is good or not known yet needs none at first."""

from __future__ import annotations

from typing import Any

import pytest

from jobqueue_operator.cluster.events import transitions


def at(status: str, type_: str = "Ready", reason: str = "Why", message: str = "said") -> dict[str, Any]:
    return {"conditions": [{"type": type_, "status": status, "reason": reason, "message": message}]}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({}, at("True"), []),
        ({}, at("False"), [("Warning", "Why", "said")]),
        ({}, at("Unknown"), []),
        (at("True"), at("Unknown"), [("Warning", "Why", "said")]),
        (at("True"), at("False"), [("Warning", "Why", "said")]),
        (at("False"), at("True"), [("Normal", "ReadyTrue", "said")]),
        (at("False"), at("False", reason="Other"), []),
        ({}, at("True", "Conflicting"), [("Warning", "Why", "said")]),
        (
            at("True", "Conflicting"), at("False", "Conflicting", message=""),
            [("Normal", "ConflictingFalse", "Conflicting is False")],
        ),
        ({}, at("True", "Progressing"), []),
        (at("False", "Progressing"), at("True", "Progressing"), [("Normal", "ProgressingTrue", "said")]),
        ({"conditions": None}, {"conditions": None}, []),
    ],
)  # fmt: skip
def test_what_is_told(before: Any, after: Any, told: Any) -> None:
    assert transitions(before, after) == told
