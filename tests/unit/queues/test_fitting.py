"""Of a snapshot's answer no more is kept than a queue can have."""

from __future__ import annotations

from typing import Any

import pytest

from jobqueue_operator.queues import fitting as module
from jobqueue_operator.queues.allowance import AnswerTooLarge
from jobqueue_operator.queues.fitting import fitting


def answer() -> dict[str, Any]:
    class_ = {
        "class": "email",
        "ages": [1.0] * 8,
        "due_soon": [],
        "attempts": {"finished": [], "running": []},
        "memory": {"need": 1.5, "at": None},
    }
    return {
        "now": 1.0,
        "classes": [class_, {**class_, "class": "video", "memory": None}],
        "workers": [{"id": 1, "info": {"node": "a"}}],
        "downstreams": [],
        "versions": [{"class": "email", "kind": "render", "version": 1, "jobs": 2, "lacking": [1]}],
        "database": {"dead_tuples": {"ready": 1}, "table_bytes": {}},
    }


def test_what_is_read_passes_and_what_workers_say_of_themselves_does_not() -> None:
    expected = answer()
    expected["workers"][0]["info"] = {}
    assert fitting(answer()) == expected


def test_memory_is_single_values() -> None:
    said = answer()
    said["classes"][0]["memory"] = {"need": [[], []], "at": {}, "kept": 2}
    assert fitting(said)["classes"][0]["memory"] == {"need": None, "at": None, "kept": 2}


def test_a_kind_is_as_long_as_one_can_be() -> None:
    said = answer()
    said["versions"][0]["kind"] = "k" * 1_000_000
    assert fitting(said)["versions"][0]["kind"] == "k" * 200


@pytest.mark.parametrize(
    ("path", "most"),
    [
        (("classes",), module.CLASSES_MOST),
        (("workers",), module.WORKERS_MOST),
        (("downstreams",), module.DOWNSTREAMS_MOST),
        (("versions",), module.VERSIONS_MOST),
        (("versions", 0, "lacking"), module.WORKERS_MOST),
        (("database", "table_bytes"), module.TABLES_MOST),
        (("database", "dead_tuples"), module.TABLES_MOST),
        (("classes", 0, "ages"), module.STEPS_MOST),
        (("classes", 1, "due_soon"), module.STEPS_MOST),
        (("classes", 0, "attempts", "finished"), module.STEPS_MOST),
        (("classes", 0, "attempts", "running"), module.STEPS_MOST),
        (("classes", 0, "memory"), module.MEMORY_MOST),
    ],
)
def test_each_list_has_an_end(path: tuple[str | int, ...], most: int) -> None:
    said: Any = answer()
    *way, last = path
    place = said
    for step in way:
        place = place[step]
    example = said[last if last in {"classes", "versions"} else "workers"][0]
    named = isinstance(place[last], dict)
    for size in (most, most + 1):
        place[last] = {f"n{n}": 1 for n in range(size)} if named else [example] * size
        if size == most:
            fitting(said)
    with pytest.raises(AnswerTooLarge, match=rf"has {most + 1} .*{last}"):
        fitting(said)
