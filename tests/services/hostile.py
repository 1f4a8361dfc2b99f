"""Servers that speak PostgreSQL's protocol and send without end, to see what a client lets them do to it."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

_MANY = 2**20
_HUGE = 10**9


def message(kind: bytes, body: bytes, *, claimed: int | None = None) -> bytes:
    """Return one message; `claimed`: bytes that its header says the body has, when there will be more."""
    return kind + struct.pack("!i", 4 + (len(body) if claimed is None else claimed)) + body


_OPEN = message(b"R", struct.pack("!i", 0)) + message(b"S", b"client_encoding\0UTF8\0")
_READY = message(b"Z", b"I")
_DONE = message(b"C", b"SELECT 1\0")
_COLUMN = message(b"T", struct.pack("!h", 1) + b"a\0" + struct.pack("!ihihih", 0, 0, 3802, -1, -1, 0))


def _row(value: bytes) -> bytes:
    return message(b"D", struct.pack("!hi", 1, len(value)) + value)


def _forever(one: bytes) -> Iterator[bytes]:
    block = one * (_MANY // len(one) + 1)
    while True:
        yield block


def _huge(kind: bytes, head: bytes) -> Iterator[bytes]:
    yield message(kind, head, claimed=_HUGE)
    yield from _forever(b"x")


def _settings() -> Iterator[bytes]:
    for start in range(0, 10**9, 1000):
        yield b"".join(message(b"S", b"s%d\0v\0" % n) for n in range(start, start + 1000))


_NOTICE = b"SWARNING\0VWARNING\0C01000\0M"
_HEARD = message(b"A", struct.pack("!i", 1) + b"a\0b\0")
_FLOODS: dict[str, Callable[[], Iterator[bytes]]] = {
    "one huge row": lambda: _after(_COLUMN, _huge(b"D", struct.pack("!hi", 1, _HUGE - 6))),
    "rows": lambda: _after(_COLUMN, _forever(_row(b"1"))),
    "notices": lambda: _forever(message(b"N", _NOTICE + b"hello\0\0")),
    "one huge notice": lambda: _huge(b"N", _NOTICE),
    "notifications": lambda: _forever(_HEARD),
    "settings": _settings,
    "one huge error": lambda: _huge(b"E", b"SERROR\0VERROR\0CXX000\0M"),
}
_AT_LOGIN: dict[str, Callable[[], Iterator[bytes]]] = {
    "login: one huge notice": lambda: _after(_OPEN, _huge(b"N", _NOTICE)),
    "login: settings": lambda: _after(_OPEN, _settings()),
    "login: notices": lambda: _after(_OPEN, _forever(message(b"N", _NOTICE + b"hello\0\0"))),
}
_ERRORS = {"a long error": b"XX000", "a long refusal": b"JQ003", "a long goodbye": b"57P01"}
_ANSWERS = {"nested": b"\x5b" * 10**6, "not a queue": b"[1, 2]", "text": b"{", "a number": b"9" * 10**5}

LONG = tuple(_ERRORS)
"""Names of databases on which every answer is an error of a million letters."""
ALL = (*_FLOODS, *_AT_LOGIN)
"""Names of databases on which it floods whoever asks, or logs in."""
NONSENSE = tuple(_ANSWERS)
"""Names of databases on which every answer is one row of jsonb that no queue gives."""
DEAF = "listeners"
"""A database on which it says yes to each statement, and announces without end to whoever listens."""


def _after(first: bytes, then: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from then


class Hostile:
    """The server, with a thread for each client. The name of the database says what it does."""

    def __enter__(self) -> Self:
        """Start listening."""
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(0.1)
        self.port = self._server.getsockname()[1]
        self.clients = 0
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        """End every thread."""
        self._over.set()
        for thread in self._threads:
            thread.join(10)
        self._server.close()

    def _accept(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(TimeoutError):
                client, _ = self._server.accept()
                self.clients += 1
                client.settimeout(0.1)
                self._threads.append(threading.Thread(target=self._serve, args=(client,)))
                self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            start = self._read(client)
            values = start[8:].split(b"\0")
            name = values[values.index(b"database") + 1].decode()
            if name in _AT_LOGIN:
                self._send(client, _AT_LOGIN[name]())
                return
            self._send(client, [_OPEN + _READY])
            while asked := self._read(client):
                if name in _FLOODS:
                    self._send(client, _FLOODS[name]())
                elif name in _ERRORS:
                    said = message(b"E", b"SERROR\0VERROR\0C" + _ERRORS[name] + b"\0M" + b"x" * _MANY + b"\0\0")
                    self._send(client, [said + _READY])
                elif name in _ANSWERS:
                    self._send(client, [_COLUMN + _row(_ANSWERS[name]) + _DONE + _READY])
                elif b"jobqueue:probe" in asked and b"LISTEN" in asked:  # the last one that a listener says
                    self._send(client, _after(_DONE + _READY, _forever(_HEARD)))
                else:
                    self._send(client, [_DONE + _READY])

    def _read(self, client: socket.socket) -> bytes:
        while not self._over.is_set():
            with contextlib.suppress(TimeoutError):
                return client.recv(65_536)
        return b""

    def _send(self, client: socket.socket, blocks: Iterator[bytes] | list[bytes]) -> None:
        for block in blocks:
            rest = memoryview(block)
            while rest and not self._over.is_set():
                with contextlib.suppress(TimeoutError):
                    rest = rest[client.send(rest) :]
            if self._over.is_set():
                return
