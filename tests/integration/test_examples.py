"""The examples run as their first lines say, and print what they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobqueue import queue
from services import postgres

if TYPE_CHECKING:
    from services.databases import Database

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def email(database: Database) -> Database:
    with database.connect() as conn:
        queue.set_class(conn, None, "email", {})
    return database


def run(database: Database, *command: str) -> str:
    done = subprocess.run(
        command,
        env={**os.environ, "JOBQUEUE_DSN": database.dsn},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_producer_in_transaction(email: Database) -> None:
    script = str(EXAMPLES / "producer_in_transaction.py")
    expected = [
        "an order and its job, committed together",
        "the same again: the same job",
        "an order that was rolled back: 0 jobs",
    ]
    for _ in range(2):  # what ran yesterday runs today
        *lines, conflict = run(email, sys.executable, script).splitlines()
        assert lines == expected
        assert conflict.startswith("the same key with another payload: key: ")


def test_external_effect(database: Database) -> None:
    said = run(database, sys.executable, str(EXAMPLES / "external_effect.py"))
    assert said == "job done after 2 attempts: 2 requests, 1 charge\n"
    with database.connect() as conn:
        assert conn.execute("SELECT * FROM paid").fetchall() == [(7, "ch-1")]


def test_plain_sql(email: Database) -> None:
    psql = str(postgres.programs("18") / "psql")
    said = run(
        email,
        psql,
        "--no-psqlrc",
        "-qAt",
        "-v",
        "ON_ERROR_STOP=1",
        "-d",
        email.dsn,
        "-f",
        str(EXAMPLES / "plain_sql.sql"),
    )
    first, again, later, *rest = said.splitlines()
    assert first.endswith("|t")
    assert again == first.replace("|t", "|f")
    assert later.endswith("|t")
    assert [line.partition("|")[0] for line in rest[:3]] == ["1", "2", "3"]
    assert rest[3] == "t"
    assert rest[4:] == [
        "invoice.email|invoice-7|pending|0|0",
        "invoice.remind||pending|0|-10",
        "invoice.email|invoice-8|pending|0|0",
        "invoice.email|invoice-9|pending|0|0",
        "invoice.email|invoice-10|pending|0|0",
    ]
