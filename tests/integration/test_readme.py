"""The README's example, run as it stands there."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from jobqueue import queue
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.databases import Database
    from services.processes import Process

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)


def _block(language: str) -> str:
    return next(text for name, text in BLOCKS if name == language)


@pytest.fixture
def shop(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "shop_jobs.py").write_text(_block("python"), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("shop_jobs", None)
    with database.connect() as conn:
        conn.execute("CREATE TABLE invoices (id int PRIMARY KEY)")
        conn.execute("CREATE TABLE sent (invoice_id int)")
        queue.set_class(conn, None, "email", {})
    return importlib.import_module("shop_jobs")


def test_the_example_sends_each_invoice_once(
    shop: Any, database: Database, run: Callable[..., Process], tmp_path: Path
) -> None:
    worker = run(
        *(sys.executable, "-m", "jobqueue", "worker", "--app", "shop_jobs:app", "--class", "email"),
        env={"JOBQUEUE_DSN": database.dsn, "JOBQUEUE_DRAIN_SOCKET": str(tmp_path / "drain.sock")},
        cwd=tmp_path,
    )
    with database.connect() as conn:
        shop.create_invoice(conn, 7)
        with pytest.raises(psycopg.errors.UniqueViolation):
            shop.create_invoice(conn, 7)  # the business write fails: no second job
        try:
            eventually(lambda: conn.execute("SELECT status FROM jobqueue.jobs").fetchall() == [("done",)], within=20)
        except AssertionError:
            raise AssertionError(worker.text) from None
        assert conn.execute("SELECT invoice_id FROM sent").fetchall() == [(7,)]
        queue.redrive(conn, [1], force=True)
        eventually(
            lambda: conn.execute("SELECT count(*) FROM jobqueue.attempts WHERE outcome = 'done'").fetchone() == (2,),
            within=20,
        )
        assert conn.execute("SELECT invoice_id FROM sent").fetchall() == [(7,)]  # run twice, sent once
    worker.signal(15)
    assert worker.wait(within=20) == 0


def test_the_sql_of_the_example_enqueues(database: Database) -> None:
    with database.connect() as conn:
        queue.set_class(conn, None, "email", {})
        assert conn.execute(_block("sql")).fetchone() == (1, True)
        assert conn.execute(_block("sql")).fetchone() == (1, False)


def test_every_document_that_the_readme_names_exists() -> None:
    root = Path(__file__).parents[2]
    missing = [name for name in re.findall(r"\]\(([\w./-]+)\)", README) if not (root / name).exists()]
    assert not missing
