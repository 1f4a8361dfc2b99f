"""From zero within a second, by LISTEN; and by looking often where nobody hears it."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from jobqueue import queue
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import psycopg

    from services.databases import Database
    from services.processes import Process

APP = """
from jobqueue import App, Job
app = App()

@app.handler("note", version=1, timeout=20)
async def note(job: Job[dict]) -> None:
    pass
"""

MANIFEST = """
apiVersion: jobqueue.dev/v1alpha1
kind: JobQueue
metadata: {name: shop}
spec:
  app: jobs:app
  classes:
  - name: email
    timeout: 20s
    target: {oldestMessageAge: TARGET}
    replicas: {min: 0, idleAfter: 1h}
"""
LISTENERS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE '%up listen'"


class Shop:
    """An `up` with a class at zero, and a look at its database."""

    def __init__(
        self, folder: Path, database: Database, run: Callable[..., Process], target: str, tick: float, *more: str
    ) -> None:
        self.folder = folder
        (folder / "jobs.py").write_text(APP)
        manifest = folder / "jobqueue.yaml"
        manifest.write_text(MANIFEST.replace("TARGET", target))
        self.connection: psycopg.Connection[Any] = database.connect()
        up = (sys.executable, "-m", "jobqueue", "up", "-f", manifest, "--tick", tick, "--dsn", database.direct, *more)
        self.process = run(*up, cwd=folder)

    def sleepers(self) -> list[int]:
        return [row[0] for row in self.connection.execute("SELECT worker_id FROM jobqueue.sleeper")]

    def listeners(self) -> list[int]:
        return [row[0] for row in self.connection.execute(LISTENERS)]

    def at_zero(self) -> None:
        """Wait until it listens, has set its flag, and looked once more."""
        eventually(lambda: self.sleepers() == [0] or self.process.code is not None, within=30, what="the flag")
        assert self.process.code is None, self.process.text
        eventually(self.listeners, what="the listener")
        eventually(lambda: len(self.listeners()) == 1, what="the listener's first probe to be over")
        self.ticks(2)

    def ticks(self, least: int) -> int:
        """Wait for so many looks, and return how many there were."""

        def seen() -> int:
            count = len([line for line in self.process.out if '"tick"' in line])
            return count if count >= least else 0

        return eventually(seen, what="looks")

    def enqueue(self) -> float:
        """Commit a job and return when."""
        queue.enqueue(self.connection, "email", "note", {})
        return time.monotonic()

    def started(self, *, within: float) -> float:
        """Wait for the first worker process and return when it was there."""
        records = self.folder / ".jobqueue" / "workers"
        eventually(lambda: list(records.glob("*.json")), within=within, what=f"a worker:\n{self.process.text}")
        return time.monotonic()

    def close(self) -> None:
        self.connection.close()


@pytest.fixture
def shop(tmp_path: Path, database: Database, run: Callable[..., Process], request: pytest.FixtureRequest) -> Any:
    made = Shop(tmp_path, database, run, *request.param)
    yield made
    made.close()


@pytest.mark.parametrize("shop", [("60s", 10.0)], indirect=True)
def test_a_job_for_a_class_at_zero_starts_a_worker_within_a_second(shop: Shop) -> None:
    shop.at_zero()
    committed = shop.enqueue()
    assert shop.started(within=20) - committed < 1.0
    eventually(lambda: shop.sleepers() in ([], [1]), what="the flag to be taken down: its worker has one of its own")
    eventually(lambda: shop.connection.execute("SELECT 1 FROM jobqueue.jobs WHERE status = 'done'").fetchone())


NOBODY = ("--listen-dsn", "postgresql://nobody@127.0.0.1:1/none")


@pytest.mark.parametrize("shop", [("4s", 30.0, *NOBODY)], indirect=True)
def test_deaf_it_looks_four_times_within_the_target(shop: Shop) -> None:
    eventually(lambda: shop.sleepers() == [0], within=30, what="the flag")
    shop.ticks(3)
    assert shop.listeners() == []
    committed = shop.enqueue()
    assert shop.started(within=20) - committed < 4.0 / 4 + 1.0


@pytest.mark.parametrize("shop", [("60s", 30.0)], indirect=True)
def test_a_listener_that_was_cut_off_listens_again(shop: Shop) -> None:
    shop.at_zero()
    (before,) = shop.listeners()
    ticks = shop.ticks(2)
    shop.connection.execute("SELECT pg_terminate_backend(%s)", (before,))
    eventually(lambda: set(shop.listeners()) - {before}, what="a new listener")
    shop.process.wait_for_line("works again")
    shop.ticks(ticks + 1)  # the look after the gap
    committed = shop.enqueue()
    assert shop.started(within=20) - committed < 1.0
    assert "polling goes on" in shop.process.text


@pytest.mark.parametrize("shop", [("60s", 0.5)], indirect=True)
def test_a_flag_that_was_lost_is_set_again_and_an_end_takes_it_down(shop: Shop) -> None:
    shop.at_zero()
    shop.connection.execute("DELETE FROM jobqueue.sleeper")
    eventually(lambda: shop.sleepers() == [0], what="the flag again")
    shop.process.signal(15)
    assert shop.process.wait(within=30) == 0, shop.process.text
    assert shop.sleepers() == []
