"""Connections on which a server can send so much and no more, whatever it sends: logins, notices, rows, errors.

libpq has no such limit. It makes room for a message of any length that its header claims, and then reads for as long
as something comes, within one call: hundreds of megabytes pass before anybody could look at a counter of the socket's.
So what the server sends is counted before libpq reads it. As soon as it has connected, its socket is exchanged for one
end of a pair; behind the other end tasks of the event loop carry the bytes, encrypted or not, and stop at the cap.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.waiting import Wait

from jobqueue_operator.queues.allowance import MIB, SMALL, Allowance, AnswerTooLarge, UnderWay

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Self

    from psycopg.abc import PQGen, PQGenConn
    from psycopg.waiting import Ready

T = TypeVar("T")
Y = TypeVar("Y")

CHUNK = 65_536
"""Bytes carried at once."""
LOGIN_MOST = MIB // 8
"""Bytes that a login takes at most: certificates, and some settings."""
LISTENING_PER_SECOND = MIB / 2
"""Bytes that a listener may be sent for long. An announcement takes some 70."""
MIGRATION_WITHIN = 600.0
"""Seconds after which a connection that migrates is cut: a thread waits for it, and nothing else can end that."""

_TOGETHER = UnderWay()


class Relay:
    """Stands between libpq and one server after the other, as it tries addresses. Works in `loop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, allowance: Allowance, *, within: float | None = None) -> None:
        self.allowance = allowance
        self._loop = loop
        self._within = within
        self._inode: int | None = None
        self._task: asyncio.Task[None] | None = None

    def through(self, connecting: PQGenConn[T]) -> PQGenConn[T]:
        """Step between as soon as a socket is connected, before anything is read from it. Raises AnswerTooLarge."""
        try:
            descriptor, wanted = self._work(connecting, None)
            while True:
                ready = yield descriptor, wanted
                if ready and os.fstat(descriptor).st_ino != self._inode and _is_connected(descriptor):
                    self._step_between(descriptor)
                    # Whoever waits may go on watching the socket that was there. Another wish makes it look anew.
                    ready = yield descriptor, Wait.RW
                descriptor, wanted = self._work(connecting, ready)
        except StopIteration as end:
            found: T = end.value
            return found

    def watched(self, answer: PQGen[T]) -> PQGen[T]:
        """Read an answer as the driver does. Raises AnswerTooLarge."""
        try:
            wanted = self._work(answer, None)
            while True:
                wanted = self._work(answer, (yield wanted))
        except StopIteration as end:
            found: T = end.value
            return found

    def _work(self, reading: Generator[Y, Any, Any], ready: Ready | int | None) -> Y:
        """Let the driver read what is there; nothing else happens meanwhile. Waits for a processor are not its work."""
        began = time.thread_time()
        try:
            wanted = reading.send(ready)
        except psycopg.Error:
            self._check()
            raise
        if not self.allowance.work(time.thread_time() - began):
            self._check()
        return wanted

    def _check(self) -> None:
        """Raise AnswerTooLarge if too much came."""
        if self.allowance.refusal:
            raise AnswerTooLarge(self.allowance.refusal) from None

    def _step_between(self, descriptor: int) -> None:
        server = socket.socket(fileno=os.dup(descriptor))
        client, libpqs = socket.socketpair()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, CHUNK)
        for end in (server, client, libpqs):
            end.settimeout(0)
        os.dup2(libpqs.fileno(), descriptor, inheritable=False)
        libpqs.close()
        self._inode = os.fstat(descriptor).st_ino
        self._loop.call_soon_threadsafe(self._begin, server, client)

    def _begin(self, server: socket.socket, client: socket.socket) -> None:
        self._task = self._loop.create_task(self._carry(server, client), name="carry a database's bytes")

    async def _carry(self, server: socket.socket, client: socket.socket) -> None:
        """Carry until either side ends, or too much came."""
        with server, client:
            both = {asyncio.create_task(self._answers(server, client)), asyncio.create_task(_requests(client, server))}
            try:
                await asyncio.wait(both, timeout=self._within, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in both:
                    task.cancel()
                await asyncio.gather(*both, return_exceptions=True)
                self.allowance.renew()

    async def _answers(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while some := await self._loop.sock_recv(server, CHUNK):
                if not self.allowance.spend(len(some), self._loop.time()):
                    return
                await self._loop.sock_sendall(client, some)


async def _requests(client: socket.socket, server: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while some := await loop.sock_recv(client, CHUNK):
            await loop.sock_sendall(server, some)


def _is_connected(descriptor: int) -> bool:
    """Whether a connection attempt succeeded; asking for its error would take that from libpq."""
    with socket.socket(fileno=os.dup(descriptor)) as duplicate, contextlib.suppress(OSError):
        duplicate.getpeername()
        return True
    return False


class Capped(psycopg.AsyncConnection[Any]):
    """Takes so much for the login, and so much for each `answer`. More is an AnswerTooLarge."""

    relay: Relay

    @classmethod
    def _connect_gen(cls, conninfo: str = "") -> PQGenConn[Self]:
        relay = Relay(asyncio.get_running_loop(), Allowance(LOGIN_MOST))
        connection = yield from relay.through(super()._connect_gen(conninfo))
        relay.allowance = cls._allowance()
        connection.relay = relay
        return connection

    @classmethod
    def _allowance(cls) -> Allowance:
        return Allowance(together=_TOGETHER)

    @contextlib.contextmanager
    def answer(self) -> Iterator[Self]:
        """Take one answer, of one statement or of some that belong together."""
        self.relay.allowance.renew()
        try:
            yield self
        finally:
            self.relay.allowance.renew()

    async def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """Do as the driver's. Raises AnswerTooLarge too."""
        return await super().wait(self.relay.watched(gen), *args, **options)


class Listening(Capped):
    """Takes a megabyte at once, and half of one a second for as long as it listens."""

    @classmethod
    def _allowance(cls) -> Allowance:
        return Allowance(most=SMALL, per_second=LISTENING_PER_SECOND)


def migrating(loop: asyncio.AbstractEventLoop) -> type[psycopg.Connection[Any]]:
    """Return a kind of connection for another thread, which takes one answer's bytes and ten minutes for everything."""

    class Migrating(psycopg.Connection[Any]):
        relay: Relay

        @classmethod
        def _connect_gen(cls, conninfo: str = "") -> PQGenConn[Self]:
            relay = Relay(loop, Allowance(together=_TOGETHER), within=MIGRATION_WITHIN)
            connection = yield from relay.through(super()._connect_gen(conninfo))
            connection.relay = relay
            return connection

        def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
            return super().wait(self.relay.watched(gen), *args, **options)

    return Migrating
