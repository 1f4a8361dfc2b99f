"""The consumer against a real broker: up, down, restarted, frozen; good and bad messages."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any

import aio_pika
import pytest

from jobqueue.errors import ConfigurationError
from jobqueue.wakeup import broker as amqp
from jobqueue.wakeup.rabbitmq import RabbitWakeup
from services.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from services.rabbitmq import Broker

LONG = 60.0


@contextlib.asynccontextmanager
async def consumer(broker: Broker, **options: Any) -> AsyncIterator[RabbitWakeup]:
    """A started consumer whose wake of connecting is used up."""
    wakeup = RabbitWakeup(broker.url, **{"classes": ["email"], "probe": 0.3, **options})
    await wakeup.start()
    try:
        await until(lambda: wakeup.consuming, within=20)
        await asyncio.wait_for(wakeup.wait(LONG), 5)
        yield wakeup
    finally:
        await asyncio.wait_for(wakeup.stop(), 10)


async def publish(broker: Broker, *bodies: bytes, class_: str = "email", schema: str = "jobqueue") -> None:
    async with amqp.opened(broker.url) as channel:
        await amqp.declare(channel, schema, class_)
        for body in bodies:
            await channel.default_exchange.publish(aio_pika.Message(body), amqp.queue_name(schema, class_))


async def sleeping(wakeup: RabbitWakeup) -> asyncio.Task[None]:
    task = asyncio.create_task(wakeup.wait(LONG))
    await asyncio.sleep(0)
    return task


async def assert_waits_are_bounded(wakeup: RabbitWakeup) -> None:
    for _ in range(5):
        began = time.monotonic()
        await wakeup.wait(0.2)
        assert time.monotonic() - began < 0.2 + 0.2


async def test_a_message_wakes_and_is_gone(broker: Broker) -> None:
    async with consumer(broker) as wakeup:
        sleeper = await sleeping(wakeup)
        await publish(broker, b'{"job_id": 7}')
        await asyncio.wait_for(sleeper, 5)
    async with amqp.opened(broker.url) as channel:
        queue = await amqp.declare(channel, "jobqueue", "email")
        assert queue.declaration_result.message_count == 0


async def test_other_classes_and_schemas_do_not_wake(broker: Broker) -> None:
    async with consumer(broker, classes=["email", "sms"]) as wakeup:
        sleeper = await sleeping(wakeup)
        await publish(broker, b'{"job_id": 7}', class_="report")
        await publish(broker, b'{"job_id": 7}', schema="other")
        await publish(broker, b"a mark")
        await until(lambda: wakeup.malformed)
        assert not sleeper.done()
        await publish(broker, b'{"job_id": 8}', class_="sms")
        await asyncio.wait_for(sleeper, 5)


async def test_malformed_messages_are_counted_dropped_and_wake_nobody(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    bad = [b"", b"\xff", b"[7]", b'{"job_id": "7"}', b"[" * 200, b'{"job_id": 7}' + b" " * 5000]
    async with consumer(broker) as wakeup:
        sleeper = await sleeping(wakeup)
        await publish(broker, *bad)
        await until(lambda: wakeup.malformed == len(bad))
        assert not sleeper.done()
        assert wakeup.consuming
        await publish(broker, b'{"job_id": 7}')
        await asyncio.wait_for(sleeper, 5)
    assert len([r for r in caplog.records if "dropped one" in r.getMessage()]) == 1


async def test_the_queue_is_bounded_by_dropping_the_oldest(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqp, "_MAX_LENGTH", 3)
    await publish(broker, *(b'{"job_id": %d}' % n for n in range(1, 6)), class_="bounded")
    async with amqp.opened(broker.url) as channel:
        queue = await amqp.declare(channel, "jobqueue", "bounded")
        assert queue.declaration_result.message_count == 3
        message = await queue.get(no_ack=True)
        assert message is not None
        assert message.body == b'{"job_id": 3}'


async def test_a_deleted_queue_is_declared_and_consumed_again(broker: Broker) -> None:
    async with consumer(broker) as wakeup:
        sleeper = await sleeping(wakeup)
        async with amqp.opened(broker.url) as channel:
            await channel.queue_delete(amqp.queue_name("jobqueue", "email"))
        await asyncio.wait_for(sleeper, 20)
        await until(lambda: wakeup.consuming)
        sleeper = await sleeping(wakeup)
        await publish(broker, b'{"job_id": 7}')
        await asyncio.wait_for(sleeper, 5)


async def test_a_frozen_broker_costs_latency_only(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqp, "CALL", 0.5)
    async with consumer(broker) as wakeup:
        broker.freeze()
        try:
            await until(lambda: not wakeup.consuming, within=20)
            await assert_waits_are_bounded(wakeup)
            began = time.monotonic()
        finally:
            broker.thaw()
        await until(lambda: wakeup.consuming, within=30)
        assert time.monotonic() - began < 30


async def test_stop_is_bounded_while_the_broker_is_frozen(broker: Broker) -> None:
    async with consumer(broker) as wakeup:
        broker.freeze()
        try:
            began = time.monotonic()
            await wakeup.stop()
            await wakeup.stop()
            assert time.monotonic() - began < 5
        finally:
            broker.thaw()


async def test_a_broker_that_crashes_and_comes_back_wakes_once(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async with consumer(broker) as wakeup:
        broker.kill()
        try:
            await until(lambda: not wakeup.consuming)
            await assert_waits_are_bounded(wakeup)
            sleeper = await sleeping(wakeup)
        finally:
            await asyncio.to_thread(broker.start)
        await asyncio.wait_for(sleeper, 40)
        assert wakeup.consuming
        sleeper = await sleeping(wakeup)
        await publish(broker, b'{"job_id": 7}')
        await asyncio.wait_for(sleeper, 5)
    lines = [r for r in caplog.records if r.levelno >= logging.WARNING and r.name.startswith(("jobqueue", "aio"))]
    assert len(lines) == 1


async def test_a_wrong_password_is_retried_and_never_logged(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    wakeup = RabbitWakeup(broker.url.replace("guest:guest", "guest:hunter2"), classes=["email"])
    await wakeup.start()
    await until(lambda: "wake-up broker" in caplog.text, within=20)
    await assert_waits_are_bounded(wakeup)
    await wakeup.stop()
    assert "hunter2" not in caplog.text


async def test_a_rotated_url_is_read_again(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("amqp://guest:guest@127.0.0.1:1/\n")
    wakeup = RabbitWakeup(str(file), classes=["email"])
    await wakeup.start()
    await asyncio.wait_for(wakeup.wait(0.1), 5)
    file.write_text(broker.url + "\n")
    await until(lambda: wakeup.consuming, within=30)
    await wakeup.stop()


@pytest.mark.parametrize(
    "url", ["", "guest:hunter2@host", "http://guest:hunter2@host/", "amqp://", "amqp://guest:hunter2@host:x/"]
)
def test_a_bad_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        RabbitWakeup(url, classes=["email"])
    assert "hunter2" not in str(refused.value)
