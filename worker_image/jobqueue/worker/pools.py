"""Connections lent to handlers: small pools that open nothing until a handler asks."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from psycopg_pool import AsyncConnectionPool, ConnectionPool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import psycopg

    from jobqueue.connect import ConnInfo

MOST = 8  # connections of each kind; many workers share one database
IDLE = 60.0  # seconds, then an unused connection is closed
WAIT = 30.0  # seconds a handler waits for one

_OPTIONS = {"autocommit": True, "prepare_threshold": None, "application_name": "jobqueue handler"}


class AsyncPool:
    """For handlers in the event loop."""

    def __init__(self, info: ConnInfo, most: int) -> None:
        self._info = info
        self._most = max(1, min(most, MOST))
        self._pool: AsyncConnectionPool[Any] | None = None

    @contextlib.asynccontextmanager
    async def lend(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Lend an idle connection; it is checked before, and reset or replaced after."""
        pool = await self._opened()
        connection = await pool.getconn()
        try:
            yield connection
        finally:
            await pool.putconn(connection)

    async def _opened(self) -> AsyncConnectionPool[Any]:
        if self._pool is None:
            self._pool = AsyncConnectionPool(
                self._info.conninfo,
                kwargs=_OPTIONS,
                min_size=0,
                max_size=self._most,
                max_idle=IDLE,
                timeout=WAIT,
                open=False,
                check=AsyncConnectionPool.check_connection,
                name="jobqueue handlers",
            )
            await self._pool.open()
        return self._pool

    async def close(self) -> None:
        """Close every connection."""
        if self._pool is not None:
            await self._pool.close(timeout=1.0)


class SyncPool:
    """For handlers in threads and in child processes."""

    def __init__(self, info: ConnInfo, most: int) -> None:
        # Opened on first use: a pool that is not open has no threads and no connections.
        self._pool: ConnectionPool[Any] = ConnectionPool(
            info.conninfo,
            kwargs=_OPTIONS,
            min_size=0,
            max_size=max(1, min(most, MOST)),
            max_idle=IDLE,
            timeout=WAIT,
            open=False,
            check=ConnectionPool.check_connection,
            name="jobqueue threads",
        )

    @contextlib.contextmanager
    def lend(self) -> Iterator[psycopg.Connection[Any]]:
        """Lend an idle connection; it is checked before, and reset or replaced after."""
        self._pool.open()
        connection = self._pool.getconn()
        try:
            yield connection
        finally:
            self._pool.putconn(connection)

    def close(self) -> None:
        """Close every connection."""
        if not self._pool.closed:
            self._pool.close(timeout=1.0)
