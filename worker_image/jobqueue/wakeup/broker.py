"""The broker's side of a wake-up: one bounded queue per class, and connections that end in bounded time."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import aio_pika
from aio_pika.exceptions import CONNECTION_EXCEPTIONS
from yarl import URL

from jobqueue.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aio_pika.abc import AbstractChannel, AbstractQueue

__all__ = ["CALL", "FAILURES", "ConsumerGoneError", "check_url", "declare", "opened", "queue_name", "reason"]

CALL = 5.0  # seconds for one call to the broker, a publisher confirm included
_CONNECT = 10.0  # seconds
_CLOSE = 2.0  # seconds
_HEARTBEAT = 10  # seconds; a frozen broker is given up after about three
_MAX_LENGTH = 10_000  # messages; more of them wake nobody sooner
_MESSAGE_TTL = 60_000  # milliseconds; by then everybody has polled
_UNUSED = 86_400_000  # milliseconds until a queue that no consumer uses is removed


class ConsumerGoneError(Exception):
    """The broker closed the channel, or ended a consumer."""


FAILURES = (*CONNECTION_EXCEPTIONS, ConsumerGoneError, ConfigurationError)  # TimeoutError is an OSError


def reason(failure: BaseException) -> str:
    """Say in one line why the broker is away; URLs and passwords never appear."""
    if isinstance(failure, TimeoutError):
        return "no answer in time"
    if isinstance(failure, ConsumerGoneError):
        return "it closed the connection"
    text = str(failure).strip().partition("\n")[0][:200]
    return f"{type(failure).__name__}: {text}" if text else type(failure).__name__


def queue_name(schema: str, class_: str) -> str:
    """Name the queue of a class. One virtual host serves one database."""
    return f"jobqueue.{schema}.{class_}"


def check_url(broker: str | Path) -> URL:
    """Read and check the AMQP URL. Raises ConfigurationError, which never repeats it: it holds a password."""
    where = f"the file {broker}" if isinstance(broker, Path) else "the broker URL"
    try:
        url = URL(broker.read_text().strip() if isinstance(broker, Path) else broker)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a URL"
        raise ConfigurationError(f"{where}: {why}") from None
    if url.scheme not in {"amqp", "amqps"} or not url.host:
        raise ConfigurationError(f"{where}: expected amqp://USER:PASSWORD@HOST:PORT/VHOST or amqps://…")
    return url


@contextlib.asynccontextmanager
async def opened(broker: str | Path) -> AsyncIterator[AbstractChannel]:
    """Open a connection and a channel with publisher confirms; raises one of FAILURES."""
    url = check_url(broker).update_query(heartbeat=_HEARTBEAT)
    async with asyncio.timeout(_CONNECT):
        connection = await aio_pika.connect(url)
    try:
        async with asyncio.timeout(CALL):
            channel = await connection.channel(publisher_confirms=True)
        yield channel
    finally:
        # A frozen broker does not answer the close either; its socket goes with the call cancelled here.
        with contextlib.suppress(*FAILURES):
            async with asyncio.timeout(_CLOSE):
                await connection.close()


async def declare(channel: AbstractChannel, schema: str, class_: str) -> AbstractQueue:
    """Declare the queue of a class. The queue is durable, its messages are not: they are only hints."""
    return await channel.declare_queue(
        queue_name(schema, class_),
        durable=True,
        arguments={
            "x-max-length": _MAX_LENGTH,
            "x-overflow": "drop-head",
            "x-message-ttl": _MESSAGE_TTL,
            "x-expires": _UNUSED,
        },
        timeout=CALL,
    )
