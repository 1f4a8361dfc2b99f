"""The worker as the first process of a container, against a real PostgreSQL."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from jobqueue import queue
from services.images import SHOP, WORKER
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

    from services.containers import Container
    from services.databases import Database

pytestmark = pytest.mark.timeout(900)  # the first of them builds

SECRET = "/etc/jobqueue/database"
APPS = Path(__file__).parent / "apps"
ENVIRONMENT = {
    "JOBQUEUE_DSN_DIR": SECRET,
    "JOBQUEUE_DRAIN_SOCKET": "/run/jobqueue/drain.sock",
    "JOBQUEUE_LOG_FORMAT": "json",
    "JOBQUEUE_POLL_INTERVAL": "0.2",
    "JOBQUEUE_WORKER_NAME": "a-pod",
}


@pytest.fixture
def secret(database: Database, tmp_path: Path) -> Path:
    """The database as a Secret's files."""
    folder = tmp_path / "secret"
    folder.mkdir()
    for name, value in conninfo_to_dict(database.dsn).items():
        (folder / name).write_text(str(value))
    return folder


@pytest.fixture
def connection(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with database.connect() as opened:
        yield opened


@pytest.fixture
def hard(start: Callable[..., Container], secret: Path) -> Container:
    """A worker with the app of this folder."""
    return start(
        WORKER,
        *("worker", "--app", "hard:app", "--class", "default"),
        env=ENVIRONMENT,
        volumes={"/app": APPS, SECRET: secret},
    )


def until(worker: Container, connection: psycopg.Connection[Any], job: int, status: str) -> None:
    query = "SELECT true FROM jobqueue.jobs WHERE id = %s AND status = %s"

    def reached() -> object:
        assert worker.process.code is None, worker.process.text
        return connection.execute(query, (job, status)).fetchone()

    eventually(reached, within=30, what=f"job {job} to be {status}")


def said(container: Container, event: str) -> bool:
    return any(json.loads(line)["event"] == event for line in container.process.lines if line.startswith("{"))


def test_the_examples_image_does_its_job_and_leaves_when_told(
    start: Callable[..., Container], secret: Path, connection: psycopg.Connection[Any]
) -> None:
    connection.execute("CREATE TABLE mail (invoice bigint, address text)")
    worker = start(
        SHOP,
        *("worker", "--app", "shop.jobs:app", "--class", "default"),
        env=ENVIRONMENT,
        volumes={SECRET: secret},
    )
    payload = {"invoice_id": 7, "address": "a@example.org"}
    job = queue.enqueue(connection, "default", "invoice.email", payload).id
    until(worker, connection, job, "done")
    assert connection.execute("SELECT invoice, address FROM mail").fetchall() == [(7, "a@example.org")]
    status = Path(f"/proc/{worker.first()}/status").read_text()
    assert "NSpid:" in status
    assert status.partition("NSpid:")[2].split("\n")[0].split()[-1] == "1"
    assert status.partition("Uid:")[2].split()[:4] == ["65532"] * 4
    assert "CapEff:\t0000000000000000" in status
    worker.process.signal(signal.SIGTERM)
    assert worker.process.wait() == 0
    assert said(worker, "draining")


def test_sigterm_lets_a_running_job_finish(hard: Container, connection: psycopg.Connection[Any]) -> None:
    job = queue.enqueue(connection, "default", "wait", {"seconds": 2.0}).id
    until(hard, connection, job, "running")
    hard.process.signal(signal.SIGTERM)
    assert hard.process.wait() == 0
    row = connection.execute("SELECT status, attempts FROM jobqueue.jobs WHERE id = %s", (job,)).fetchone()
    assert row == ("done", 1)


def test_the_pre_stop_command_drains_and_the_container_ends(
    hard: Container, connection: psycopg.Connection[Any]
) -> None:
    job = queue.enqueue(connection, "default", "wait", {"seconds": 0.0}).id
    until(hard, connection, job, "done")
    drained = hard.execute("jobqueue", "drain")
    assert (drained.returncode, drained.stderr) == (0, "")
    assert hard.process.wait() == 0


def test_the_first_process_reaps_what_handlers_orphan(hard: Container, connection: psycopg.Connection[Any]) -> None:
    job = queue.enqueue(connection, "default", "orphan", {}).id
    until(hard, connection, job, "done")
    supervisor, runner, *orphans = hard.processes()
    assert len(orphans) == 1, "the first process is not the orphan's parent"
    eventually(lambda: list(hard.processes()) == [supervisor, runner], what="the orphan to be reaped")


def test_a_command_that_waits_as_the_first_process_ends_when_told(start: Callable[..., Container]) -> None:
    # The kernel gives a first process no default action for SIGTERM: who takes none cannot be stopped but by SIGKILL.
    with socket.create_server(("127.0.0.1", 0)) as mute:
        dsn = f"host=127.0.0.1 port={mute.getsockname()[1]} dbname=shop"
        container = start(WORKER, "stats", "--dsn", dsn)
        mute.settimeout(20)
        connected, _ = mute.accept()
        with connected:
            container.process.signal(signal.SIGTERM)
            assert container.process.wait(within=5) == 128 + signal.SIGTERM
