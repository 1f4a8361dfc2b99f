"""Fixtures: `jobs` enqueues and looks, `worker_process` starts workers with `handlers.py`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from services.workers import Jobs, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from services.databases import Database


@pytest.fixture
def jobs(database: Database) -> Iterator[Jobs]:
    """Enqueue for the class `default`: lease 3 s, so that tests about its end are short."""
    made = Jobs(database)
    made.settings(lease_seconds=3, timeout_seconds=20, concurrency=8, backoff_initial_seconds=0.1)
    yield made
    made.connection.close()


@pytest.fixture
def worker_process(run: Any, database: Database, tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """Start a worker: `worker_process(concurrency=4, …)`; all are killed at the end."""
    started: list[Worker] = []

    def start(through: Database | None = None, *, ready: bool = True, **settings: Any) -> Worker:
        folder = tmp_path / f"w{len(started)}"
        folder.mkdir()
        worker = Worker(run, through or database, folder, Path(__file__).parent, **settings)
        started.append(worker)
        if ready:
            worker.until_ready()
        return worker

    yield start
    for worker in started:
        worker.kill_all()
