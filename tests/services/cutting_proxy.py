"""A TCP proxy before PostgreSQL that cuts connections at chosen points of the protocol.

It reads the frontend/backend protocol (version 3, without TLS) message by message, so that «after the server has
committed and before the client hears of it» is an exact place and not a matter of timing.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import psycopg.conninfo

from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any, Self

_ENDS_A_REQUEST = (b"Q", b"S")  # simple query, Sync: the server answers each with one ReadyForQuery
_READY = b"Z"
_SPECIAL_CODES = (80877103, 80877104)  # SSLRequest, GSSENCRequest: answered with one bare byte
T = TypeVar("T")

_CALL_WITHIN = 10.0  # seconds for a call into the proxy's loop


class _Cut(Exception):  # noqa: N818 - not an error: the point was reached
    """The connection has reached the point where it is to be cut."""


@dataclass(eq=False)
class _Session:
    """One client's connection: how many requests were sent, how many answered, and where it is to be cut."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    requests: int = 1  # the start-up packet is answered with ReadyForQuery as well
    answers: int = 0
    matched: bool = False
    cut_at: int | None = None  # the number of the answer that ends the matched request

    def abort(self) -> None:
        """Close both sides at once, as a lost network would."""
        self.client.transport.abort()
        self.server.transport.abort()


class CuttingProxy:
    """The proxy, in a thread of its own. Use it as a context manager; `dsn()` points at it."""

    def __init__(self, host: str, port: int) -> None:
        """Forward to the PostgreSQL or PgBouncer at this address."""
        self.target = (host, port)
        self.port = 0
        self.cuts = 0  # connections cut by a rule so far
        self._needle_before: bytes | None = None
        self._needle_after: bytes | None = None
        self._refusing = False
        self._sessions: set[_Session] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        """Start listening."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cutting-proxy", daemon=True)
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        """Cut everything and end the thread."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_WITHIN)
        self._loop.close()

    def dsn(self, dsn: str) -> str:
        """Return `dsn` with the proxy in the server's place (and encryption off, so that it can be read)."""
        return psycopg.conninfo.make_conninfo(
            dsn, host="127.0.0.1", port=self.port, sslmode="disable", gssencmode="disable"
        )

    def cut(self) -> int:
        """Cut every open connection now; return how many there were."""
        return self._call(self._cut_all())

    def cut_before(self, needle: bytes) -> None:
        """Cut the next connection whose client sends a message with `needle`, which never reaches the server."""
        self._call(self._arm(before=needle))

    def cut_reply_after(self, needle: bytes) -> None:
        """Cut the next connection whose client sends a message with `needle`, once the server has answered it.

        The message is forwarded, the server does what it says (commits, say), its answer is thrown away, and both
        sides are closed. Happens once; arm it again for the next time.
        """
        self._call(self._arm(after=needle))

    def refuse(self) -> None:
        """Close new connections at once, until `accept()`."""
        self._refusing = True

    def accept(self) -> None:
        """Let new connections in again."""
        self._refusing = False

    def wait_cut(self, *, count: int = 1, within: float = 10.0) -> None:
        """Wait until a rule has cut `count` connections since the proxy started."""
        eventually(lambda: self.cuts >= count, within=within, what=f"cut number {count}")

    @property
    def connections(self) -> int:
        """How many connections are open through the proxy."""
        return len(self._sessions)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_WITHIN)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        await self._cut_all()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _cut_all(self) -> int:
        open_now = list(self._sessions)
        for session in open_now:
            session.abort()
        return len(open_now)

    async def _arm(self, *, before: bytes | None = None, after: bytes | None = None) -> None:
        self._needle_before, self._needle_after = before, after

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._refusing:
            writer.transport.abort()
            return
        try:
            server_reader, server_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        session = _Session(writer, server_writer)
        self._sessions.add(session)
        directions = [
            asyncio.ensure_future(self._forward_requests(reader, session)),
            asyncio.ensure_future(self._forward_answers(server_reader, session)),
        ]
        try:
            # Whichever side ends first ends the connection; what it sent before has been written already.
            done, _ = await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            if any(isinstance(one.exception(), _Cut) for one in done):
                session.abort()
                self.cuts += 1
        finally:
            self._sessions.discard(session)
            for one in directions:
                one.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
            for side in (session.client, session.server):
                side.close()

    async def _forward_requests(self, reader: asyncio.StreamReader, session: _Session) -> None:
        try:
            while True:  # SSL and GSS requests may come before the start-up packet itself
                head = await reader.readexactly(8)
                length, code = struct.unpack("!II", head)
                rest = await reader.readexactly(length - 8)
                if code in _SPECIAL_CODES:
                    session.client.write(b"N")  # no encryption here, please ask without
                    continue
                session.server.write(head + rest)
                await session.server.drain()
                break
            while True:
                kind, whole = await _message(reader)
                self._inspect(kind, whole, session)
                session.server.write(whole)
                await session.server.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    def _inspect(self, kind: bytes, whole: bytes, session: _Session) -> None:
        if self._needle_before is not None and self._needle_before in whole:
            self._needle_before = None
            raise _Cut
        if self._needle_after is not None and self._needle_after in whole:
            self._needle_after = None
            session.matched = True
        if kind in _ENDS_A_REQUEST:
            session.requests += 1
            if session.matched and session.cut_at is None:
                session.cut_at = session.requests

    async def _forward_answers(self, reader: asyncio.StreamReader, session: _Session) -> None:
        try:
            while True:
                kind, whole = await _message(reader)
                last = session.cut_at or session.requests + 1
                thrown_away = session.matched and session.answers == last - 1
                session.answers += kind == _READY
                if thrown_away and kind == _READY:
                    raise _Cut
                if thrown_away:
                    continue
                session.client.write(whole)
                await session.client.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read one typed message: a byte, then a length that counts itself, then the body."""
    head = await reader.readexactly(5)
    (length,) = struct.unpack("!I", head[1:])
    return head[:1], head + await reader.readexactly(length - 4)
