"""`jobqueue explain` asks a live queue."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from jobqueue import queue
from jobqueue.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from services.databases import Database

    Explain = Callable[..., tuple[int, str, str]]

MANIFEST = """
apiVersion: jobqueue.dev/v1alpha1
kind: JobQueue
metadata: {name: shop}
spec:
  app: jobs:app
  classes:
  - {name: default, timeout: 30s, replicas: {min: 0, max: 3}}
"""


@pytest.fixture
def explain(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Explain:
    for name in [n for n in os.environ if n.startswith(("JOBQUEUE_", "PG"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("JOBQUEUE_DSN", database.dsn)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobqueue.yaml").write_text(MANIFEST)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(["explain", *arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return call


def test_what_would_be_decided_now_with_nothing_recorded(explain: Explain, database: Database) -> None:
    with database.connect() as connection:
        queue.enqueue_many(connection, [queue.NewJob("default", "nap", {"n": n}) for n in range(40)])
        queue.register_worker(connection, "default-1", "default", [("nap", 1)], slots=10)
    code, out, err = explain("default")
    assert (code, err) == (0, "")
    assert "  ready      40\n" in out
    assert "  workers    1: 1 starting\n" in out
    assert out.splitlines()[-1].startswith("asked anew: ")
    found = json.loads(explain("--json", "--tick", "5")[1])
    assert (found["source"], found["classes"][0]["tick"]) == ("live", 5.0)


def test_a_class_that_was_never_registered_is_named(explain: Explain, tmp_path: Path) -> None:
    (tmp_path / "new.yaml").write_text(MANIFEST.replace("default", "email"))
    code, out, err = explain("-f", "new.yaml")
    assert (code, out) == (2, "")
    assert err == (
        "error: new.yaml: the queue has no class email\n"
        "hint: jobqueue up registers classes when it starts, and jobqueue migrate --manifest new.yaml\n"
    )


def test_a_database_that_is_not_there(explain: Explain) -> None:
    code, out, err = explain("--dsn", "postgresql://127.0.0.1:1/x")
    assert (code, out) == (1, "")
    assert err.startswith("error: database (host 127.0.0.1, port 1")


def test_a_database_without_a_queue(explain: Explain) -> None:
    code, out, err = explain("--schema", "nowhere")
    assert (code, out) == (2, "")
    assert "jobqueue migrate" in err
