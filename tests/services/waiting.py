"""Waiting for a condition with a bound (the only way a test lets time pass), and openers of connections."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from jobqueue.wakeup.notify import Opener

T = TypeVar("T")

_PAUSE = 0.02  # seconds between two looks


def eventually(condition: Callable[[], T | None], *, within: float = 10.0, what: str = "", every: float = _PAUSE) -> T:
    """Call `condition` until it returns something true, and return that; AssertionError after `within` seconds."""
    deadline = time.monotonic() + within
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(_late(what, within, value))
        time.sleep(every)


async def eventually_async(condition: Callable[[], Awaitable[T | None]], *, within: float = 10.0, what: str = "") -> T:
    """Like `eventually`, for a condition that is awaited."""
    deadline = time.monotonic() + within
    while True:
        value = await condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(_late(what, within, value))
        await asyncio.sleep(_PAUSE)


def _late(what: str, within: float, value: object) -> str:
    return f"{what or 'the condition'} did not hold within {within:g} s (last value: {value!r})"


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
