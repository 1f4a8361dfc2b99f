"""Frames over a socket pair: between supervisor and runner, and between runner and child.

A frame is its length (4 bytes), its kind (1 byte) and its body. Most are JSON objects with a `type`; the two on the
hot path are arrays of 64-bit numbers, so that telling of 500 jobs costs microseconds.
"""

from __future__ import annotations

import asyncio
import json
import struct
from array import array
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

JSON: Final = 0
HOLD: Final = 1  # when the claim was sent (ns), then id, token, id, token, …
DROP: Final = 2  # tokens that are held no longer

_HEAD = struct.Struct("!IB")
LONGEST = 64 * 1024 * 1024  # bytes; a job's payload is at most 256 KiB

Frame = tuple[int, Any]


def encode(message: dict[str, Any]) -> bytes:
    """Return a JSON frame."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return _HEAD.pack(len(body), JSON) + body


def encode_numbers(kind: int, numbers: Iterable[int]) -> bytes:
    """Return a frame of 64-bit numbers."""
    body = array("q", numbers).tobytes()
    return _HEAD.pack(len(body), kind) + body


def _decode(kind: int, body: bytes) -> Frame:
    if kind == JSON:
        return kind, json.loads(body)
    numbers = array("q")
    numbers.frombytes(body)
    return kind, numbers


class Pipe:
    """One end, on an event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, sock: socket.socket) -> Pipe:
        """Take over a connected socket."""
        return cls(*await asyncio.open_connection(sock=sock))

    def send(self, **message: Any) -> None:
        """Send a JSON message without waiting; nothing happens when the other side is gone."""
        self._write(encode(message))

    def send_numbers(self, kind: int, numbers: Iterable[int]) -> None:
        """Send numbers without waiting."""
        self._write(encode_numbers(kind, numbers))

    def _write(self, frame: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(frame)

    async def drain(self) -> None:
        """Wait until the other side has taken most of what was sent."""
        await self._writer.drain()

    async def receive(self) -> Frame | None:
        """Return the next frame, or None when the other side is gone."""
        try:
            length, kind = _HEAD.unpack(await self._reader.readexactly(_HEAD.size))
            return _decode(kind, await self._reader.readexactly(min(length, LONGEST)))
        except (asyncio.IncompleteReadError, OSError):
            return None

    def close(self) -> None:
        """Close this end."""
        self._writer.close()


def receive_blocking(sock: socket.socket) -> Frame | None:
    """Read one frame in a thread; None when the other side is gone."""
    head = _read_exactly(sock, _HEAD.size)
    if head is None:
        return None
    length, kind = _HEAD.unpack(head)
    body = _read_exactly(sock, min(length, LONGEST))
    return None if body is None else _decode(kind, body)


def _read_exactly(sock: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        try:
            part = sock.recv(size - len(parts))
        except OSError:
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)
