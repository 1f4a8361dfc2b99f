"""One connection that comes back: reconnects with growing, jittered pauses, and speaks of it at a bounded rate."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from jobqueue import connect
from jobqueue.errors import ConnectionFailed
from jobqueue.wakeup.reconnect import Backoff, Outage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from jobqueue.connect import ConnInfo
    from jobqueue.worker.orders import Orders

T = TypeVar("T")

CALL_TIMEOUT = 30.0  # seconds for one statement; a half-open socket would wait for ever
CONNECT_TIMEOUT = 15.0  # seconds, over all addresses

# Errors of a live connection that mean «the same statement again»: it was rolled back whole.
RETRYABLE = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.QueryCanceled,
)


class LinkDownError(Exception):
    """The connection was lost during a call: whether the statement was carried out is not known."""


def database(orders: Orders, *, listen: bool = False) -> ConnInfo:
    """Say where the worker's database is. Raises ConfigurationError."""
    dsn, folder = orders.dsn, orders.dsn_dir
    if listen and (orders.listen_dsn or orders.listen_dsn_dir):
        dsn, folder = orders.listen_dsn, orders.listen_dsn_dir
    return connect.resolve(dsn, directory=None if folder is None else Path(folder))


class Link:
    """A connection in autocommit mode, for one caller at a time."""

    def __init__(self, name: str, info: ConnInfo, *, on_reconnect: Callable[[], Awaitable[None]] | None = None) -> None:
        self._name = name
        self._info = info
        self._on_reconnect = on_reconnect
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._was_connected = False
        self._backoff = Backoff(initial=0.2, longest=2.0)
        self._outage = Outage(logging.getLogger("jobqueue.worker"), f"database ({name})", every=30.0)
        self._lock = asyncio.Lock()

    @property
    def up(self) -> bool:
        """Whether the last thing that happened was not a failure."""
        return self._connection is not None and not self._connection.closed

    async def open(self) -> None:
        """Connect once. Raises ConnectionFailed."""
        async with asyncio.timeout(CONNECT_TIMEOUT):
            connection = await connect.open_async(
                self._info, autocommit=True, application_name=f"jobqueue {self._name}"
            )
        self._connection = connection

    async def call(
        self, verb: Callable[..., Awaitable[T]], *args: Any, patience: float = CALL_TIMEOUT, **kwargs: Any
    ) -> T:
        """Run a verb of the queue. Connects first when need be, for as long as that takes.

        Raises LinkDownError when the connection was lost before the answer came, and the verb's own errors.
        """
        async with self._lock:
            connection = await self._connected()
            timer = asyncio.get_running_loop().call_later(patience, cut, connection)
            try:
                answer = await verb(connection, *args, **kwargs)
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if not (connection.closed or connection.broken):
                    raise
                await self._dropped(connection)
                raise LinkDownError(first_line(error)) from None
            finally:
                timer.cancel()
            # Not when it connected: a call that always fails would be repeated without a pause.
            self._backoff.reset()
            self._outage.over()
            return answer

    async def call_again(self, verb: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """Run a verb that may be repeated, until its answer comes. Raises the verb's own errors, and DataError."""
        while True:
            try:
                return await self.call(verb, *args, **kwargs)
            except LinkDownError:
                continue
            except (psycopg.DataError, psycopg.IntegrityError):
                raise
            except psycopg.Error as error:
                # A deadlock, a full disk, rights that are being changed: what is told is true later too.
                if not isinstance(error, RETRYABLE):
                    self._outage.failed(first_line(error))
                await asyncio.sleep(self._backoff.next())

    async def close(self) -> None:
        """Close the connection, also when its socket is frozen."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._discard(connection)

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        while self._connection is None or self._connection.closed:
            try:
                await self.open()
                if self._was_connected and self._on_reconnect is not None:
                    await self._on_reconnect()
            except (ConnectionFailed, LinkDownError, psycopg.Error, OSError) as error:
                await self.close()
                self._outage.failed(first_line(error))
                await asyncio.sleep(self._backoff.next())
        self._was_connected = True
        return self._connection

    @property
    def connection(self) -> psycopg.AsyncConnection[Any]:
        """The open connection, for `on_reconnect` alone."""
        if self._connection is None:
            raise LinkDownError(self._name)
        return self._connection

    async def _dropped(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = None
        await self._discard(connection)

    @staticmethod
    async def _discard(connection: psycopg.AsyncConnection[Any]) -> None:
        cut(connection)
        with contextlib.suppress(Exception):
            await connection.close()


def cut(connection: psycopg.AsyncConnection[Any]) -> None:
    """End a connection's socket: cancelling a call would wait for an answer that may never come."""
    if connection.closed:
        return
    # Through a duplicate, so that libpq's descriptor stays valid while the event loop watches it.
    with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)


def permanent(error: BaseException) -> bool:
    """Whether a failed connection is a matter of settings: a wrong password, user or database name."""
    return isinstance(error, ConnectionFailed) and not error.retry_helps


def first_line(error: BaseException) -> str:
    """Return an error's first line, or its type: what a log line may hold."""
    text = str(error).strip()
    return text.splitlines()[0][:500] if text else type(error).__name__


@contextlib.asynccontextmanager
async def once(info: ConnInfo, name: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Open a connection for a single purpose."""
    async with asyncio.timeout(CONNECT_TIMEOUT):
        connection = await connect.open_async(info, autocommit=True, application_name=f"jobqueue {name}")
    try:
        yield connection
    finally:
        await Link._discard(connection)  # noqa: SLF001
