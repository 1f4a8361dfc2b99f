"""LISTEN against real PostgreSQL: what wakes, what does not, and every way in which a listener goes deaf."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from jobqueue.wakeup.notify import NotifyWakeup, Patience
from services.proxy import proxied
from services.waiting import notify, opener, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from jobqueue.wakeup.notify import Opener
    from services.databases import Database
    from services.proxy import Proxy

LONG = 60.0
HASTY = Patience(probe=0.2, echo=0.5, connect=2, deaf=0.3)


@contextlib.asynccontextmanager
async def listener(connect: Opener, **options: Any) -> AsyncIterator[NotifyWakeup]:
    """A started listener that has heard its echo, and whose wake of connecting is used up."""
    wakeup = NotifyWakeup(connect, **{"classes": ["email"], "patience": HASTY, **options})
    await wakeup.start()
    try:
        await until(lambda: wakeup.listening)
        await asyncio.wait_for(wakeup.wait(LONG), 5)
        yield wakeup
    finally:
        await asyncio.wait_for(wakeup.stop(), 5)


@contextlib.asynccontextmanager
async def proxy_to(database: Database) -> AsyncIterator[tuple[Proxy, str]]:
    port = conninfo_to_dict(database)["port"]
    async with proxied(lambda: asyncio.open_connection("127.0.0.1", port)) as proxy:
        yield proxy, make_conninfo(database, port=proxy.port)


async def sleeping(wakeup: NotifyWakeup) -> asyncio.Task[None]:
    task = asyncio.create_task(wakeup.wait(LONG))
    await asyncio.sleep(0)
    return task


async def test_work_for_its_class_wakes(database: Database) -> None:
    async with listener(opener(database)) as wakeup:
        sleeper = await sleeping(wakeup)
        await notify(database, "class:email")
        await asyncio.wait_for(sleeper, 5)


async def test_other_classes_schemas_and_nonsense_do_not_wake(database: Database) -> None:
    cancelled: list[int] = []
    async with listener(opener(database), on_cancel=cancelled.append) as wakeup:
        sleeper = await sleeping(wakeup)
        await notify(database, "class:email", schema="other")
        for payload in (
            "class:emails",
            "class:",
            "",
            "class",
            "cancel:",
            "cancel:-1",
            "cancel:x",
            "cancel:²",
            "new:email",
        ):
            await notify(database, payload)
        await notify(database, "cancel:7")  # notifications keep their order: the others have been heard by then
        await until(lambda: cancelled)
        assert cancelled == [7]
        assert not sleeper.done()
        wakeup.wake()
        await sleeper


async def test_without_classes_every_class_wakes(database: Database) -> None:
    async with listener(opener(database), classes=None) as wakeup:
        sleeper = await sleeping(wakeup)
        await notify(database, "class:whatever")
        await asyncio.wait_for(sleeper, 5)


async def test_a_failing_callback_does_not_end_the_listener(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    def explode(job_id: int) -> None:
        raise RuntimeError(job_id)

    async with listener(opener(database), on_cancel=explode) as wakeup:
        sleeper = await sleeping(wakeup)
        await notify(database, "cancel:7")
        await notify(database, "class:email")
        await asyncio.wait_for(sleeper, 5)
    assert "the cancellation callback failed for job 7" in caplog.text


async def test_a_terminated_backend_is_replaced_and_wakes_once(database: Database) -> None:
    async with listener(opener(database, application_name="victim")) as wakeup:
        sleeper = await sleeping(wakeup)
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as admin:
            await admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'victim'"
            )
        await asyncio.wait_for(sleeper, 10)  # something may have been missed
        await until(lambda: wakeup.listening)
        sleeper = await sleeping(wakeup)
        await notify(database, "class:email")
        await asyncio.wait_for(sleeper, 5)


async def test_a_healthy_listener_is_probed_and_kept(database: Database) -> None:
    async with proxy_to(database) as (proxy, through), listener(opener(through)) as wakeup:
        assert proxy.accepted == 2
        sleeper = await sleeping(wakeup)
        done, _ = await asyncio.wait({sleeper}, timeout=HASTY.probe * 5)
        assert not done
        assert wakeup.listening
        assert proxy.accepted == 2
        wakeup.wake()
        await sleeper


async def test_a_half_open_socket_is_noticed_and_replaced(database: Database) -> None:
    async with proxy_to(database) as (proxy, through), listener(opener(through)) as wakeup:
        proxy.freeze()
        await until(lambda: not wakeup.listening, within=HASTY.probe + HASTY.echo + 5)
        proxy.thaw()
        await until(lambda: wakeup.listening)
        await asyncio.wait_for(wakeup.wait(LONG), 5)
        sleeper = await sleeping(wakeup)
        await notify(database, "class:email")
        await asyncio.wait_for(sleeper, 5)


async def test_a_wait_on_a_frozen_socket_is_bounded_and_so_is_stop(database: Database) -> None:
    async with proxy_to(database) as (proxy, through), listener(opener(through)) as wakeup:
        proxy.freeze()
        for _ in range(5):
            began = time.monotonic()
            await wakeup.wait(0.3)
            assert time.monotonic() - began < 0.3 + 0.2
        began = time.monotonic()
        await wakeup.stop()
        assert time.monotonic() - began < 3


async def test_a_cut_connection_is_replaced(database: Database) -> None:
    async with proxy_to(database) as (proxy, through), listener(opener(through)) as wakeup:
        sleeper = await sleeping(wakeup)
        proxy.cut()
        await asyncio.wait_for(sleeper, 10)
        await until(lambda: wakeup.listening)


async def test_an_unreachable_server_only_costs_latency_and_few_lines(
    unused_tcp_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    wakeup = NotifyWakeup(opener(f"host=127.0.0.1 port={unused_tcp_port}"), classes=["email"], patience=HASTY)
    await wakeup.start()
    for _ in range(10):
        began = time.monotonic()
        await wakeup.wait(0.2)
        assert time.monotonic() - began < 0.2 + 0.2
    await wakeup.stop()
    warnings = [
        r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING and r.name.startswith("jobqueue")
    ]
    assert len(warnings) == 1
    assert "polling goes on" in warnings[0]


async def test_stop_is_idempotent_before_and_after_start(database: Database) -> None:
    wakeup = NotifyWakeup(opener(database), classes=["email"])
    await wakeup.stop()
    await wakeup.start()
    await wakeup.stop()
    await wakeup.stop()
    async with listener(opener(database, application_name="stopped")) as other:
        await other.stop()
        await other.stop()
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as admin:

        async def all_closed() -> bool:
            query = "SELECT FROM pg_stat_activity WHERE application_name = 'stopped'"
            return not (await admin.execute(query)).rowcount

        await until(all_closed)
