"""Real workers, asleep: each kind of wake-up starts a job long before the next poll; without it the poll does."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import psycopg
import psycopg.conninfo
import pytest

from jobqueue import queue
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from services.databases import Database
    from services.processes import Process
    from services.rabbitmq import Broker

COMMAND = (sys.executable, "-c", "import sys; from jobqueue.cli import main; sys.exit(main())")
APP = """
from jobqueue import App, Job
app = App()
@app.handler("hello")
async def hello(job: Job) -> None:
    pass
"""


@pytest.fixture
def environment(migrated: Database, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "sleepy.py").write_text(APP)
    return {
        "JOBQUEUE_DSN": migrated.dsn,
        "JOBQUEUE_DRAIN_SOCKET": str(tmp_path / "drain"),
        "PYTHONPATH": ":".join([str(tmp_path), *filter(None, sys.path)]),
    }


def worker(run: Callable[..., Process], environment: dict[str, str], *options: str) -> Process:
    command = ("worker", "--app", "sleepy:app", "--class", "email", *options)
    return run(*COMMAND, *command, env=environment)


def until_asleep(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """The flag is up, and the look that follows it is over: the connection that claims has been idle for a while."""
    asleep = """
        SELECT FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%.claim(%' AND state = 'idle'
           AND state_change < clock_timestamp() - interval '300 ms'
           AND EXISTS (SELECT FROM jobqueue.sleeper WHERE worker_id > 0)
    """
    eventually(lambda: connection.execute(asleep).rowcount, within=30, what="the worker's sleep")


def seconds_until_done(connection: psycopg.Connection[tuple[object, ...]]) -> float:
    began = time.monotonic()
    job = queue.enqueue(connection, "email", "hello", {}).id
    done = "SELECT FROM jobqueue.jobs WHERE id = %s AND status = 'done'"
    eventually(lambda: connection.execute(done, (job,)).rowcount, within=30, what="the job")
    return time.monotonic() - began


@pytest.fixture
def listener(migrated: Database, tmp_path: Path) -> Iterator[Path]:
    """The login of a role that may do nothing but connect and LISTEN, as a mounted Secret."""
    login = psycopg.conninfo.conninfo_to_dict(migrated.direct) | {"user": "mere_listener"}
    folder = tmp_path / "listen"
    folder.mkdir()
    for name, value in login.items():
        (folder / name).write_text(str(value))
    with migrated.connect() as connection:
        connection.execute("CREATE ROLE mere_listener LOGIN")
        yield folder
        connection.execute("DROP ROLE mere_listener")


def test_notify_starts_a_job_long_before_the_poll(
    migrated: Database, run: Callable[..., Process], environment: dict[str, str], listener: Path
) -> None:
    environment["JOBQUEUE_LISTEN_DSN_DIR"] = str(listener)
    worker(run, environment, "--poll-interval", "60")
    with migrated.connect() as connection:
        until_asleep(connection)
        listening = "SELECT usename FROM pg_stat_activity WHERE application_name = 'jobqueue listen'"
        assert connection.execute(listening).fetchall() == [("mere_listener",)]
        assert seconds_until_done(connection) < 5


def test_a_message_starts_a_job_long_before_the_poll(
    migrated: Database, broker: Broker, run: Callable[..., Process], environment: dict[str, str]
) -> None:
    environment["JOBQUEUE_BROKER_URL"] = broker.url
    run(*COMMAND, "relay", "--classes", "email", env=environment)
    worker(run, environment, "--poll-interval", "60", "--wakeup", "rabbitmq")
    with migrated.connect() as connection:
        until_asleep(connection)
        relay = "SELECT FROM jobqueue.sleeper WHERE worker_id = -1"
        eventually(lambda: connection.execute(relay).rowcount, within=20, what="the relay's sleep")
        assert seconds_until_done(connection) < 5


def test_a_worker_whose_listener_is_cut_again_and_again_polls(
    migrated: Database, run: Callable[..., Process], environment: dict[str, str]
) -> None:
    worker(run, environment, "--poll-interval", "1")
    cut = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'jobqueue listen'"
    )
    with migrated.connect() as connection:
        until_asleep(connection)
        assert eventually(lambda: connection.execute(cut).rowcount, what="the listener")
        assert seconds_until_done(connection) < 5
