"""What a database sends without end ends at a cap: in memory, in time, and with an error that has a name."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from jobqueue import connect
from jobqueue.errors import JobQueueError
from jobqueue_operator.cluster.links import Address, Link, Place
from jobqueue_operator.cluster.login import Login
from jobqueue_operator.queues.allowance import MIB, AnswerTooLarge
from jobqueue_operator.queues.capped import Capped, migrating
from jobqueue_operator.queues.database import Database as OperatorDatabase
from jobqueue_operator.up.embedded import EmbeddedPostgres
from services import hostile
from services.hostile import Hostile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from services.databases import Database

GROWTH = 100 * MIB
"""Bytes by which a process may grow at most: rows of one digit take ten times as much as what was sent."""

# A process of its own, so that its memory is that of the client.
ASK = """
import asyncio, json, pathlib, re, sys, time
from jobqueue.connect import ConnInfo
from jobqueue.errors import JobQueueError
from jobqueue.wakeup.notify import Patience
from jobqueue import connect
from jobqueue_operator.queues.capped import Listening
from jobqueue_operator.queues.capped import Capped, migrating
from jobqueue_operator.queues.database import Database
from jobqueue_operator.queues.waking import Doorbell

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1]) * 1024

async def ask(dsn):
    database = Database(ConnInfo(dsn, None), "jobqueue", holder="test")
    try:
        await database.snapshot(tick=5)
    except JobQueueError as error:
        return type(error).__name__
    finally:
        await database.close()

async def listen(dsn):
    opened = []

    async def open():
        opened.append(await connect.open_async_as(Listening, ConnInfo(dsn, None)))
        return opened[-1]

    bell = Doorbell(open, schema="jobqueue", patience=Patience(echo=8))
    await bell.start()
    late, began = 0.0, time.monotonic()
    while not any(each.relay.allowance.refusal for each in opened) and time.monotonic() - began < 10:
        before = time.monotonic()
        await asyncio.sleep(0.01)
        late = max(late, time.monotonic() - before)
    await bell.stop()
    return late, any(each.relay.allowance.refusal for each in opened)

async def main(names, listening):
    found = {"before": peak(), "errors": {}}
    for name in names:
        found["errors"][name] = await ask(sys.argv[1] + f" dbname='{name}'")
    found["late"], found["cut"] = await listen(sys.argv[1] + f" dbname='{listening}'")
    print(json.dumps(found | {"after": peak()}))

asyncio.run(main(json.loads(sys.argv[2]), sys.argv[3]))
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Hostile]:
    with Hostile() as started:
        yield started


def _dsn(server: Hostile, **more: str) -> str:
    options = {"host": "127.0.0.1", "port": str(server.port), "user": "operator", "sslmode": "disable"}
    return psycopg.conninfo.make_conninfo(gssencmode="disable", **options, **more)


def test_whatever_is_sent_without_end_is_cut_off(server: Hostile) -> None:
    command = [sys.executable, "-c", ASK, _dsn(server), json.dumps(hostile.ALL), hostile.DEAF]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["errors"] == dict.fromkeys(hostile.ALL, "AnswerTooLarge")
    assert found["after"] - found["before"] < GROWTH
    assert found["cut"]
    assert found["late"] < 1.0  # seconds that everything else in the process waited


@pytest.mark.parametrize("name", hostile.NONSENSE)
async def test_an_answer_that_no_queue_gives_is_refused_by_name(server: Hostile, name: str) -> None:
    database = OperatorDatabase(connect.ConnInfo(_dsn(server, dbname=name), None), "jobqueue", holder="test")
    try:
        with pytest.raises(JobQueueError, match="what no queue does"):
            await database.snapshot(tick=5)
    finally:
        await database.close()


@pytest.mark.parametrize("name", hostile.LONG)
async def test_of_a_long_message_the_beginning_is_passed_on(server: Hostile, name: str) -> None:
    database = OperatorDatabase(connect.ConnInfo(_dsn(server, dbname=name), None), "jobqueue", holder="test")
    try:
        with pytest.raises(JobQueueError, match=r"^x{2000}$"):
            await database.snapshot(tick=5)
    finally:
        await database.close()


async def test_a_jobqueue_is_told_that_its_database_sends_too_much(server: Hostile, tmp_path: Path) -> None:
    link = Link(
        Place("db", server.port, "rows", "jobqueue"), "test", folder=tmp_path, may_migrate=True, ring=lambda: None
    )
    login = Login("127.0.0.1", server.port, "rows", "operator", sslmode="disable")
    address = Address(login, ("127.0.0.1",))
    link.use(address, address)
    try:
        await link.look(tick=5)
        assert link.failure is not None
        assert link.failure.reason == "AnswerTooLarge"
        assert "16 MiB" in link.failure.message
        assert "Secret" in link.failure.message
        asked = server.clients
        await link.look(tick=5)
        assert (server.clients, link.failure.reason) == (asked, "AnswerTooLarge")  # not again for a while
    finally:
        await link.close()


async def test_a_migration_takes_no_more_either(server: Hostile) -> None:
    kind = migrating(asyncio.get_running_loop())

    def ask() -> None:
        with connect.open_sync(connect.ConnInfo(_dsn(server, dbname="one huge row"), None), kind=kind) as connection:
            connection.execute("SELECT 1")

    with pytest.raises(AnswerTooLarge):
        await asyncio.to_thread(ask)


async def test_a_migration_connects_by_a_socket_of_this_machine(tmp_path: Path) -> None:
    """There the first answer may be awaited before anything stands between; it comes by another socket then."""
    server = EmbeddedPostgres(tmp_path / "postgres")
    info = connect.resolve(server.start())
    kind = migrating(asyncio.get_running_loop())

    def ask() -> None:
        with connect.open_sync(info, kind=kind) as connection:
            connection.execute("SELECT 1")

    try:
        async with asyncio.timeout(8):  # of the ten seconds after which an attempt is given up
            for _ in range(20):
                await asyncio.to_thread(ask)
    finally:
        server.stop()


async def test_answers_of_a_real_queue_pass_whole(database: Database) -> None:
    """Each has the whole allowance, and what goes to the server has no cap."""
    connection = await connect.open_async_as(Capped, connect.ConnInfo(str(database), None))
    try:
        for _ in range(3):
            with connection.answer():
                assert await _length(connection, "x" * 10 * MIB) == 10 * MIB
        with pytest.raises(AnswerTooLarge):
            await _length(connection, "x" * 17 * MIB)
    finally:
        await connection.close()


async def _length(connection: Capped, text: str) -> int:
    (found,) = await (await connection.execute("SELECT %s", (text,))).fetchall()
    return len(found[0])
