"""Bounded waiting on conditions, and openers of connections, for tests."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobqueue.wakeup.notify import Opener


async def until(condition: Callable[[], object], *, within: float = 10.0) -> None:
    async with asyncio.timeout(within):
        while True:
            answer = condition()
            if await answer if inspect.isawaitable(answer) else answer:
                return
            await asyncio.sleep(0.01)  # what is waited for has no event of its own


def opener(dsn: str, **options: Any) -> Opener:
    return lambda: psycopg.AsyncConnection.connect(dsn, prepare_threshold=None, connect_timeout=5, **options)


async def notify(dsn: str, payload: str, *, schema: str = "jobqueue") -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute("SELECT pg_notify(%s, %s)", (f"jobqueue:{schema}", payload))
