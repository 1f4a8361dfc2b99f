from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING

import structlog

from jobqueue.worker import logs

if TYPE_CHECKING:
    from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_a_traceback_is_readable_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(SimpleNamespace(log_level="info", log_format="json"))
    try:
        int("the reason")
    except ValueError:
        logging.getLogger("library").exception("theirs")
        structlog.get_logger().exception("ours")
    theirs, ours = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    for line in (theirs, ours):
        assert line["exception"].startswith("Traceback (most recent call last):")
        assert line["exception"].endswith("invalid literal for int() with base 10: 'the reason'")
