from __future__ import annotations

import json

import pytest

from jobqueue_operator.platforms.last_words import last_words


def entry(level: str, event: str, **fields: str) -> str:
    return json.dumps({"level": level, "event": event, **fields})


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], ""),
        (["", "  "], ""),
        (["Traceback:", "ValueError: no"], "ValueError: no"),
        ([entry("info", "up"), "Killed"], "Killed"),
        ([entry("error", "cannot import", error="shop"), entry("info", "bye")], "cannot import: shop"),
        ([entry("info", "up"), entry("info", "bye")], "bye"),
        ([entry("critical", "cannot start", error="2 errors\n  app\n  class")], "cannot start: 2 errors app class"),
        ([entry("error", "failed", exception="Traceback:\n  …\nValueError: no\n")], "failed: ValueError: no"),
        ([json.dumps({"class": "email"})], '{"class": "email"}'),
        (["[1, 2]"], "[1, 2]"),
        (["x" * 2000], "x" * 500),
    ],
)
def test_the_last_words_are_what_went_wrong(lines: list[str], said: str) -> None:
    assert last_words("\n".join(lines)) == said
