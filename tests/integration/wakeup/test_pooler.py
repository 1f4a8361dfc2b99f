"""LISTEN through PgBouncer in transaction mode: accepted, never heard, said once."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from jobqueue.wakeup.notify import NotifyWakeup, Patience
from services.pooler import PgBouncer
from services.waiting import notify, opener, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from services.databases import Database
    from services.postgres import Server

HASTY = Patience(probe=0.2, echo=0.3, connect=2, deaf=0.05)


@pytest.fixture(params=[1, 4])
def pooled(request: pytest.FixtureRequest, pg: Server, database: Database) -> Iterator[str]:
    """Through one server connection, where a self-notification does come back, and through several."""
    bouncer = PgBouncer(pg, pool_size=request.param)
    yield bouncer.dsn(database.name)
    bouncer.destroy()


async def test_deafness_is_said_once_with_its_remedy(pooled: str, caplog: pytest.LogCaptureFixture) -> None:
    attempts = 0
    connect = opener(pooled)

    def counted() -> object:
        nonlocal attempts
        attempts += 1
        return connect()

    wakeup = NotifyWakeup(counted, classes=["email"], patience=HASTY)  # type: ignore[arg-type]
    await wakeup.start()
    await until(lambda: attempts >= 10, within=20)
    assert not wakeup.listening
    async with asyncio.timeout(2):
        await wakeup.wait(0.1)
        await wakeup.wait(0.1)
    await wakeup.stop()
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert sum("--listen-dsn" in line for line in lines) == 1
    assert len(lines) == 2


async def test_a_direct_dsn_is_the_remedy(database: Database, pooled: str) -> None:
    wakeup = NotifyWakeup(opener(database), classes=["email"], patience=HASTY)
    await wakeup.start()
    await until(lambda: wakeup.listening)
    await wakeup.wait(1)
    sleeper = asyncio.create_task(wakeup.wait(60))
    await notify(pooled, "class:email")
    await asyncio.wait_for(sleeper, 5)
    await wakeup.stop()
