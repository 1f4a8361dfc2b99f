"""Wake-up by messages `{"job_id": N}` from RabbitMQ.

A message says «look» and nothing else: the rows are loaded by a claim, so that a lost, doubled, late or
forged message costs a look. It is therefore acknowledged by its delivery. With the broker down, restarting or
frozen, `wait` falls back to its timeout while one background task reconnects.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

from jobqueue.wakeup import broker as amqp
from jobqueue.wakeup.polling import PollingWakeup
from jobqueue.wakeup.reconnect import Backoff, Outage

if TYPE_CHECKING:
    import random
    from collections.abc import Collection
    from pathlib import Path

    from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

log = logging.getLogger(__name__)

_MAX_BODY = 256  # bytes
_MAX_ID = 2**63 - 1


class RabbitWakeup(PollingWakeup):
    """Wakes on messages in its classes' queues, and polls underneath. `malformed` counts messages dropped."""

    def __init__(
        self,
        broker: str | Path,
        *,
        classes: Collection[str],
        schema: str = "jobqueue",
        probe: float = 30.0,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(rng=rng)
        amqp.check_url(broker)
        self._broker = broker
        self._classes = sorted(classes)
        self._schema = schema
        self._probe = probe
        self._backoff = Backoff(longest=amqp.RETRY, rng=self._rng)
        self._outage = Outage(log, "the wake-up broker")
        self._nonsense = Outage(log, "wake-up messages")
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        self.consuming = False
        self.malformed = 0

    async def start(self) -> None:
        """Consume in the background, until `stop`."""
        if self._task is None and not self._stopped:
            self._task = asyncio.create_task(self._keep_consuming(), name="wakeup-rabbitmq")

    async def stop(self) -> None:
        """End the consumer and its connection."""
        self._stopped = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        await super().stop()

    async def _keep_consuming(self) -> None:
        while True:
            try:
                async with amqp.opened(self._broker) as channel:
                    await self._consume(channel)
            except amqp.FAILURES as error:
                self._outage.failed(amqp.reason(error))
            finally:
                self.consuming = False
            await asyncio.sleep(self._backoff.next())

    async def _consume(self, channel: AbstractChannel) -> None:
        queues = [await amqp.declare(channel, self._schema, class_) for class_ in self._classes]
        tags = {await queue.consume(self._heard, no_ack=True, timeout=amqp.CALL) for queue in queues}
        self.consuming = True
        self.wake()  # messages of the time without a consumer may have been dropped
        self._backoff.reset()
        self._outage.over()
        await self._watch(channel, queues[0], tags)

    async def _watch(self, channel: AbstractChannel, queue: AbstractQueue, tags: set[str]) -> None:
        """Return or raise when the connection, the channel or a consumer is gone, or the broker is mute."""
        lost = asyncio.Event()
        channel.close_callbacks.add(lambda *_: lost.set())
        while not lost.is_set():
            try:
                async with asyncio.timeout(self._probe):
                    await lost.wait()
            except TimeoutError:
                await queue.declare(timeout=amqp.CALL)
                # A deleted queue takes its consumer along, with a notice and no error.
                underlay: Any = await channel.get_underlay_channel()
                if not tags <= set(underlay.consumers):
                    raise amqp.ConsumerGoneError from None
        raise amqp.ConsumerGoneError

    async def _heard(self, message: AbstractIncomingMessage) -> None:
        if names_a_job(message.body):
            self.wake()
        else:
            self.malformed += 1
            self._nonsense.failed("dropped one that is not {'job_id': N}")


def names_a_job(body: bytes) -> bool:
    """Tell whether a message is `{"job_id": N}`, with N a positive bigint. Other members are ignored."""
    if len(body) > _MAX_BODY:
        return False
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return False
    job_id = message.get("job_id") if isinstance(message, dict) else None
    return type(job_id) is int and 0 < job_id <= _MAX_ID
