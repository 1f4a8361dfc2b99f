"""The broker's side of a wake-up: one bounded queue per class, and connections that end in bounded time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

import aio_pika
from aio_pika.exceptions import CONNECTION_EXCEPTIONS
from yarl import URL

from jobqueue.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aio_pika.abc import AbstractChannel, AbstractQueue

__all__ = [
    "CALL",
    "FAILURES",
    "RETRY",
    "ConsumerGoneError",
    "check_url",
    "declare",
    "opened",
    "queue_name",
    "reason",
]

CALL = 5.0  # seconds for one call to the broker, a publisher confirm included
RETRY = 10.0  # seconds between two tries to reach the broker, at most
_CONNECT = 10.0  # seconds
_CLOSE = 2.0  # seconds
_HEARTBEAT = 10  # seconds; a frozen broker is given up after about three
_MAX_LENGTH = 10_000  # messages; more of them wake nobody sooner
_MESSAGE_TTL = 60_000  # milliseconds; by then everybody has polled
_UNUSED = 86_400_000  # milliseconds until a queue that no consumer uses is removed


_EXPECTED = "expected amqp://USER:PASSWORD@HOST:PORT/VHOST, or amqps://…"


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
    """Read and check an AMQP URL, or the file of this path that holds one.

    Raises ConfigurationError, which repeats neither: the URL holds a password, and a path may be a mistyped URL.
    """
    try:
        url = URL(str(broker) if "://" in str(broker) else Path(broker).read_text().strip())
    except OSError as error:
        raise ConfigurationError(f"the broker URL is neither a URL nor a readable file: {error.strerror}") from None
    except ValueError:
        raise ConfigurationError(f"the broker URL is not valid: {_EXPECTED}") from None
    if url.scheme not in {"amqp", "amqps"} or not url.host:
        raise ConfigurationError(f"the broker URL is not valid: {_EXPECTED}")
    return url


def _not_ours(_record: logging.LogRecord) -> bool:
    return not _ours.get()


# The client logs each failed try as an error; ours are said by Outage at a bounded rate. An application's own
# connections in this process keep their lines: tasks inherit the variable from the context that opened them.
_ours: ContextVar[bool] = ContextVar("ours", default=False)
for _name in ("aiormq.connection", "aiormq.channel", "aio_pika.channel"):
    logging.getLogger(_name).addFilter(_not_ours)


@contextlib.asynccontextmanager
async def opened(broker: str | Path) -> AsyncIterator[AbstractChannel]:
    """Open a channel on a connection of its own: confirmed, unroutable is an error. Raises FAILURES."""
    url = check_url(broker).update_query(heartbeat=_HEARTBEAT)
    _ours.set(True)
    async with asyncio.timeout(_CONNECT):
        connection = await aio_pika.connect(url)
    try:
        async with asyncio.timeout(CALL):
            channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
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
