"""What the process sets for itself before anything else."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from jobqueue_operator.cluster.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _limit() -> Iterator[None]:
    before = sys.getrecursionlimit()
    yield
    sys.setrecursionlimit(before)


def test_an_object_as_deep_as_an_api_server_takes_it_can_be_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JOBQUEUE_OPERATOR_TICK", "never")
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2
    assert "TICK" in capsys.readouterr().err.upper()
    assert json.loads('{"x":' * 10_000 + "1" + "}" * 10_000)


@pytest.mark.parametrize(("arguments", "status"), [(["--help"], 0), (["--namespaces", "shop"], 2)])
def test_it_takes_no_arguments_and_lists_its_variables(
    arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == status
    assert "JOBQUEUE_OPERATOR_NAMESPACES" in capsys.readouterr().out
