"""The contract that every kind of wake-up keeps, by one suite on all of them."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from jobqueue.wakeup import Wakeup, create
from services.waiting import notify, opener, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.databases import Database
    from services.rabbitmq import Broker

LONG = 60.0


@pytest.fixture(params=["polling", "notify", "rabbitmq"])
def build(request: pytest.FixtureRequest, database: Database) -> Callable[[], Wakeup]:
    """Make one that can reach its server, and one more at each call."""
    broker: Broker | None = request.getfixturevalue("broker") if request.param == "rabbitmq" else None
    url = broker.url if broker else None
    return lambda: create(request.param, classes=["contract"], connect=opener(database), broker=url)


@pytest.fixture(params=["polling", "notify", "rabbitmq"])
def unreachable(request: pytest.FixtureRequest, unused_tcp_port: int) -> Wakeup:
    """One whose server does not exist."""
    nowhere = f"host=127.0.0.1 port={unused_tcp_port}"
    url = f"amqp://127.0.0.1:{unused_tcp_port}/"
    return create(request.param, classes=["contract"], connect=opener(nowhere), broker=url)


async def test_it_wakes_at_once_bounds_every_wait_and_stops_twice(build: Callable[[], Wakeup]) -> None:
    wakeup = build()
    await wakeup.start()
    await wakeup.start()
    wakeup.wake()
    await asyncio.wait_for(wakeup.wait(LONG), 5)
    for _ in range(3):
        began = time.monotonic()
        await wakeup.wait(0.2)
        assert time.monotonic() - began < 0.2 + 0.2
    await asyncio.wait_for(wakeup.stop(), 5)
    await asyncio.wait_for(wakeup.stop(), 5)


async def test_stop_ends_a_wait_and_leaves_polling(build: Callable[[], Wakeup]) -> None:
    wakeup = build()
    await wakeup.start()
    await asyncio.wait_for(wakeup.wait(0.5), 5)
    sleeper = asyncio.create_task(wakeup.wait(LONG))
    await asyncio.sleep(0)
    await asyncio.wait_for(wakeup.stop(), 5)
    await asyncio.wait_for(sleeper, 5)
    await asyncio.wait_for(wakeup.wait(0.1), 5)


async def test_stop_leaves_no_task_and_is_final(build: Callable[[], Wakeup]) -> None:
    before = asyncio.all_tasks()
    wakeup = build()
    await wakeup.stop()
    await wakeup.start()
    await asyncio.wait_for(wakeup.stop(), 5)

    async def alone() -> bool:
        return asyncio.all_tasks() <= before

    await until(alone)
    await wakeup.start()
    assert asyncio.all_tasks() <= before


async def test_without_its_server_it_polls(unreachable: Wakeup) -> None:
    await asyncio.wait_for(unreachable.start(), 1)
    for _ in range(5):
        began = time.monotonic()
        await unreachable.wait(0.2)
        elapsed = time.monotonic() - began
        assert 0.2 * 0.75 - 0.01 < elapsed < 0.2 + 0.2
    unreachable.wake()
    await asyncio.wait_for(unreachable.wait(LONG), 5)
    await asyncio.wait_for(unreachable.stop(), 5)


async def test_commit_to_wake_takes_milliseconds(database: Database) -> None:
    wakeup = create("notify", classes=["contract"], connect=opener(database))
    await wakeup.start()
    await asyncio.wait_for(wakeup.wait(LONG), 5)
    taken = []
    for _ in range(20):
        sleeper = asyncio.create_task(wakeup.wait(LONG))
        await asyncio.sleep(0)
        await notify(database, "class:contract")
        began = time.monotonic()
        await asyncio.wait_for(sleeper, 5)
        taken.append(time.monotonic() - began)
    await wakeup.stop()
    assert sorted(taken)[10] < 0.05
