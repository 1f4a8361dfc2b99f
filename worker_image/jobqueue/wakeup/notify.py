"""Wake-up by LISTEN, on a connection of its own.

A listener can be deaf without an error: a half-open socket delivers nothing for hours, and a pooler in
transaction mode accepts LISTEN and then gives the session to somebody else. So nothing is believed without an
echo:

* after each LISTEN a second, short-lived connection notifies the listener's private channel. Only a second
  can tell, as a pooler may hand a self-notification back on the very session that listened;
* from then on the listener notifies itself each `probe` seconds, and reconnects when the echo does not come.

Payloads on `jobqueue:<schema>` are `class:<name>` (work for a class) and `cancel:<job id>`. All else is
ignored, so that a newer schema can say more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import secrets
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg
from psycopg import sql

from jobqueue.errors import MESSAGE_MOST, JobQueueError
from jobqueue.wakeup.polling import PollingWakeup
from jobqueue.wakeup.reconnect import Backoff, Outage

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator

Opener: TypeAlias = "Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]"

log = logging.getLogger(__name__)

_BIGINT = re.compile("[0-9]{1,19}")

_DEAF_AFTER = 2  # unanswered first probes in a row before LISTEN is called impossible: one may be a slow server


@dataclass(frozen=True)
class Patience:
    """How long to wait for what, in seconds."""

    probe: float = 30.0  # between two probes of a healthy listener
    echo: float = 5.0  # for an echo, then the connection counts as dead
    connect: float = 15.0  # for a connection to open, over all its addresses
    deaf: float = 600.0  # between two tries where LISTEN never echoes


class _NoEchoError(Exception):
    """A probe was sent and its echo did not come back in time."""


class NotifyWakeup(PollingWakeup):
    """Wakes on NOTIFY for its classes (None: every class), and polls underneath."""

    def __init__(
        self,
        connect: Opener,
        *,
        classes: Collection[str] | None,
        on_cancel: Callable[[int], None] | None = None,
        schema: str = "jobqueue",
        patience: Patience | None = None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(rng=rng)
        self._connect = connect
        self._classes = None if classes is None else frozenset(classes)
        self._on_cancel = on_cancel
        self._channel = f"jobqueue:{schema}"
        self._private = f"jobqueue:probe:{secrets.token_hex(8)}"
        self._patience = patience or Patience()
        self._backoff = Backoff(rng=self._rng)
        self._outage = Outage(log, "LISTEN for new work")
        self._unheard = 0  # fresh connections in a row whose first probe had no echo
        self._task: asyncio.Task[None] | None = None
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._stopping = False
        self.listening = False  # an echo has come back on the current connection

    async def start(self) -> None:
        """Listen in the background, until `stop`."""
        if self._task is None and not self._stopping:
            self._task = asyncio.create_task(self._keep_listening(), name="wakeup-notify")

    async def stop(self) -> None:
        """End the listener and close its connection, also when its socket is frozen."""
        self._stopping = True
        task, self._task = self._task, None
        if task is not None:
            if self._connection is not None:
                # A cancelled driver call waits for the server's answer; one whose socket ends does not.
                _cut(self._connection)
                await asyncio.wait({task}, timeout=1.0)
            task.cancel()
            await asyncio.wait({task})
        await super().stop()

    async def _keep_listening(self) -> None:
        while not self._stopping:
            delay = await self._listen_until_failure()
            if not self._stopping:
                await asyncio.sleep(delay)

    async def _listen_until_failure(self) -> float:
        """Listen as long as it works; return how many seconds to wait before the next try."""
        try:
            async with self._opened() as connection:
                self._connection = connection
                try:
                    await self._listen(connection)
                finally:
                    self.listening, self._connection = False, None
        except _NoEchoError:
            self._unheard += 1
            if self._unheard >= _DEAF_AFTER:
                return self._deafened()
            self._outage.failed("a probe had no echo")
        except (psycopg.Error, OSError, JobQueueError) as error:  # TimeoutError is an OSError
            if not self._stopping:
                self._outage.failed(_first_line(error))
        return self._backoff.next()

    async def _listen(self, connection: psycopg.AsyncConnection[Any]) -> None:
        with self._cut_when_late(connection):
            for channel in (self._channel, self._private):
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        self.wake()  # what was announced while nobody listened is only found by looking
        async with self._opened() as outside:
            await self._probe(connection, sender=outside)
        self.listening = True
        self._unheard = 0
        self._backoff.reset()
        self._outage.over()
        while True:
            await self._receive(connection, self._patience.probe * self._rng.uniform(0.75, 1.0))
            await self._probe(connection, sender=connection)

    async def _probe(self, connection: psycopg.AsyncConnection[Any], *, sender: psycopg.AsyncConnection[Any]) -> None:
        token = secrets.token_hex(8)
        with self._cut_when_late(sender):
            await sender.execute("SELECT pg_notify(%s, %s)", (self._private, token))
        deadline = time.monotonic() + self._patience.echo
        while (left := deadline - time.monotonic()) > 0:
            if await self._receive(connection, left, awaited=token):
                return
        raise _NoEchoError

    async def _receive(
        self, connection: psycopg.AsyncConnection[Any], seconds: float, *, awaited: str | None = None
    ) -> bool:
        """Act on what arrives within `seconds`, or until something does when an echo is awaited. Return if it came."""
        came = False
        # Always exhausted: leaving the iterator early loses what came in the same packet.
        async for heard in connection.notifies(timeout=seconds, stop_after=None if awaited is None else 1):
            if heard.channel == self._private:
                came = came or heard.payload == awaited
            else:
                self._act(heard.payload)
        return came

    def _act(self, payload: str) -> None:
        topic, _, value = payload.partition(":")
        if topic == "class":
            if self._classes is None or value in self._classes:
                self.wake()
        elif topic == "cancel" and self._on_cancel is not None and _BIGINT.fullmatch(value):
            try:
                self._on_cancel(int(value))
            except Exception:  # a callback's fault must not end the listener
                log.exception("the cancellation callback failed for job %s", value)

    def _deafened(self) -> float:
        if self._unheard == _DEAF_AFTER:
            log.warning(
                "LISTEN is accepted here but nothing is ever heard, as behind PgBouncer in transaction mode. "
                "Give the database's own address with --listen-dsn. Until then new work waits for a poll."
            )
        return self._patience.deaf * self._rng.uniform(0.75, 1.0)

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        async with asyncio.timeout(self._patience.connect):
            connection = await self._connect()
        try:
            with self._cut_when_late(connection):
                await connection.set_autocommit(True)
            yield connection
        finally:
            _cut(connection)
            await connection.close()

    @contextlib.contextmanager
    def _cut_when_late(self, connection: psycopg.AsyncConnection[Any]) -> Iterator[None]:
        """Bound driver calls by ending their socket: cancelling one would wait for a frozen server."""
        timer = asyncio.get_running_loop().call_later(self._patience.echo, _cut, connection)
        try:
            yield
        finally:
            timer.cancel()


def _cut(connection: psycopg.AsyncConnection[Any]) -> None:
    if connection.closed:
        return
    # Through a duplicate, so that libpq's descriptor stays valid while the event loop watches it.
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:MESSAGE_MOST] if text else type(error).__name__
