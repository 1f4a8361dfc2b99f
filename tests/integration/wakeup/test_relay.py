"""The relay between a real database and a real broker: after commit, never in the way, bounded when either is away."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from jobqueue import queue
from jobqueue.wakeup import broker as amqp
from jobqueue.wakeup.rabbitmq import RabbitWakeup
from jobqueue.wakeup.relay import Pace, Relay
from services.waiting import opener, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from services.databases import Database
    from services.rabbitmq import Broker

LONG = 60.0
SLOW = Pace(poll=LONG)  # what is quick with it was announced, not polled
QUICK = Pace(poll=0.1)


@pytest.fixture(autouse=True)
async def empty_queues(broker: Broker) -> None:
    """Messages of another test's database would wake this one's consumer."""
    async with amqp.opened(broker.url) as channel:
        for class_ in ("email", "sms"):
            await channel.queue_delete(amqp.queue_name("jobqueue", class_))


@contextlib.asynccontextmanager
async def relaying(dsn: str, broker: Broker, pace: Pace, *, listen: bool = True) -> AsyncIterator[Relay]:
    relay = Relay(opener(dsn), broker.url, classes=["email", "sms"], pace=pace, listen=opener(dsn) if listen else None)
    await relay.start()
    try:
        await until(lambda: relay.relaying, within=20)
        yield relay
    finally:
        await asyncio.wait_for(relay.stop(), 10)


async def messages(broker: Broker, class_: str = "email") -> list[int]:
    found = []
    async with amqp.opened(broker.url) as channel:
        declared = await amqp.declare(channel, "jobqueue", class_)
        while (message := await declared.get(no_ack=True, fail=False)) is not None:
            found.append(json.loads(message.body)["job_id"])
    return found


async def sleepers(connection: psycopg.AsyncConnection[Any]) -> int:
    return (await connection.execute("SELECT FROM jobqueue.sleeper")).rowcount


@contextlib.asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        yield connection


async def test_a_commit_wakes_a_sleeping_worker_and_a_rollback_does_not(migrated: Database, broker: Broker) -> None:
    worker = RabbitWakeup(broker.url, classes=["email"])
    await worker.start()
    await until(lambda: worker.consuming, within=20)
    await worker.wait(LONG)
    async with relaying(migrated, broker, SLOW) as relay, connected(migrated) as connection:
        await until(lambda: sleepers(connection))
        sleeper = asyncio.create_task(worker.wait(LONG))
        with contextlib.suppress(ZeroDivisionError):
            async with connection.transaction():
                await queue.enqueue(connection, "email", "hello", {})
                raise ZeroDivisionError
        async with connection.transaction():
            await queue.enqueue(connection, "email", "hello", {})
            done, _ = await asyncio.wait({sleeper}, timeout=0.3)
            assert not done
            assert relay.published == 0
        await asyncio.wait_for(sleeper, 5)
        assert relay.published == 1
    await worker.stop()


async def test_each_ready_job_is_published_once_to_its_class_and_scheduled_ones_are_not(
    migrated: Database, broker: Broker
) -> None:
    async with connected(migrated) as connection:
        ids = [(await queue.enqueue(connection, "email", "hello", {"n": n})).id for n in range(3)]
        text = (await queue.enqueue(connection, "sms", "hello", {})).id
        later = "SELECT jobqueue.enqueue('email', 'hello', '{}', run_after => now() + interval '1 hour')"
        await connection.execute(later)
        async with relaying(migrated, broker, QUICK, listen=False) as relay:
            await until(lambda: relay.published == 4)
            last = (await queue.enqueue(connection, "email", "hello", {})).id
            await until(lambda: relay.published == 5)
            assert relay.lag >= 0
    assert sorted(await messages(broker)) == [*ids, last]
    assert await messages(broker, "sms") == [text]


async def test_the_workers_role_is_enough(migrated: Database, broker: Broker) -> None:
    async with connected(migrated) as connection:
        await queue.enqueue(connection, "email", "hello", {})
    async with relaying(make_conninfo(migrated, options="-c role=jobqueue_worker"), broker, QUICK) as relay:
        await until(lambda: relay.published == 1)
        await until(lambda: relay.relaying)
    assert relay.failures == 0


async def test_a_job_that_still_waits_is_published_again_later(migrated: Database, broker: Broker) -> None:
    async with connected(migrated) as connection:
        await queue.enqueue(connection, "email", "hello", {})
    async with relaying(migrated, broker, Pace(poll=0.05, again=0.3)) as relay:
        await until(lambda: relay.published >= 3)


async def test_an_enqueue_just_before_the_flag_is_up_is_found(
    migrated: Database, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_flag = Relay._raise_flag  # noqa: SLF001 - the moment has no other name

    async with connected(migrated) as connection:

        async def raise_flag_late(relay: Relay, own: psycopg.AsyncConnection[Any], *, asleep: bool) -> None:
            if asleep and not relay.published:
                await queue.enqueue(connection, "email", "hello", {})
            await raise_flag(relay, own, asleep=asleep)

        monkeypatch.setattr(Relay, "_raise_flag", raise_flag_late)
        async with relaying(migrated, broker, SLOW, listen=False) as relay:  # nothing else makes it look again
            await until(lambda: relay.published == 1)


async def test_a_stopped_relay_leaves_no_flag_and_no_connection(migrated: Database, broker: Broker) -> None:
    async with connected(migrated) as connection:
        async with relaying(migrated, broker, SLOW):
            await until(lambda: sleepers(connection))
        assert await sleepers(connection) == 0

        async def alone() -> bool:
            others = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            return not (await connection.execute(others + " AND backend_type = 'client backend'")).rowcount

        await until(alone)


async def test_an_unreachable_broker_blocks_nobody_and_piles_nothing_up(
    migrated: Database, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async with relaying(migrated, broker, QUICK) as relay, connected(migrated) as connection:
        broker.kill()
        try:
            began = time.monotonic()
            for n in range(200):
                await queue.enqueue(connection, "email", "hello", {"n": n})
            assert time.monotonic() - began < 5
            await until(lambda: relay.failures)
        finally:
            await asyncio.to_thread(broker.start)
        await until(lambda: relay.published >= 50, within=40)
    lines = [
        r
        for r in caplog.records
        if r.levelno >= logging.WARNING and r.name.startswith(("jobqueue", "aiormq", "aio_pika"))
    ]
    assert len(lines) == 1


async def test_a_frozen_broker_is_given_up_after_the_confirm_timeout(
    migrated: Database, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amqp, "CALL", 0.5)
    async with relaying(migrated, broker, QUICK) as relay, connected(migrated) as connection:
        broker.freeze()
        try:
            await queue.enqueue(connection, "email", "hello", {})
            await until(lambda: relay.failures, within=20)
            assert relay.published == 0
            await queue.enqueue(connection, "email", "hello", {})
        finally:
            broker.thaw()
        await until(lambda: relay.published == 2, within=30)


async def test_a_terminated_database_session_is_replaced(migrated: Database, broker: Broker) -> None:
    async with relaying(migrated, broker, QUICK) as relay, connected(migrated) as connection:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        await queue.enqueue(connection, "email", "hello", {})
        await until(lambda: relay.published == 1, within=30)


async def test_what_waits_is_found_without_walking_the_backlog(migrated: Database) -> None:
    """50,000 scheduled and 50,000 due rows of one class, and parked and paused ones, cost a look nothing."""
    async with connected(migrated) as connection:
        fill = """SELECT count(*) FROM jobqueue.enqueue_many(
            array_fill('email'::text, ARRAY[10000]), array_fill('hello'::text, ARRAY[10000]),
            array_fill('{}'::jsonb, ARRAY[10000]), priorities => array_fill(%s, ARRAY[10000]),
            run_afters => array_fill(now() + %s::interval, ARRAY[10000]))"""
        for _ in range(5):
            await connection.execute(fill, (10, "1 hour"))
            await connection.execute(fill, (0, "-1 hour"))
        await connection.execute("SELECT jobqueue.set_paused(NULL, 'sms', true)")
        await queue.enqueue(connection, "sms", "hello", {})
        plan = await connection.execute(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT json) SELECT * FROM jobqueue.waiting('{email,sms}')"
        )
        ((document,),) = await plan.fetchall()
        top = document[0]["Plan"]
        assert top["Actual Rows"] == 50
        assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 400
