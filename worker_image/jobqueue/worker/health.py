"""HTTP for the kubelet and Prometheus: /live, /ready, /progress, /metrics. GET only, one answer a connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 5.0  # seconds for a request to arrive
LONGEST = 8192  # bytes of it


@dataclass(frozen=True)
class Health:
    """What the endpoints answer. Ready and live do not depend on the database."""

    ready: bool
    why: str
    """Why it is not ready, or what it does."""
    progressing: bool
    worker: int | None
    running: int
    waiting: int
    ended: int
    oldest_running_seconds: float
    database: bool


class HealthServer:
    """Serves until stopped."""

    def __init__(self, port: int, health: Callable[[], Health], metrics: Callable[[], bytes]) -> None:
        self._port = port
        self._health = health
        self._metrics = metrics
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen on all addresses; returns the port."""
        self._server = await asyncio.start_server(self._serve, "0.0.0.0", self._port, limit=LONGEST)  # noqa: S104
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Close the port."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                request = await reader.readuntil(b"\r\n\r\n")
                status, kind, body = self._answer(request)
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                    "Connection: close\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _answer(self, request: bytes) -> tuple[str, str, bytes]:
        parts = request.split(b"\r\n", 1)[0].split(b" ")
        if len(parts) != 3 or parts[0] != b"GET":  # noqa: PLR2004 - method, target, version
            return "405 Method Not Allowed", "text/plain", b"GET only\n"
        path = parts[1].split(b"?", 1)[0]
        if path == b"/metrics":
            return "200 OK", "text/plain; version=0.0.4; charset=utf-8", self._metrics()
        health = self._health()
        body = json.dumps(asdict(health)).encode() + b"\n"
        if path == b"/live":
            return "200 OK", "application/json", body
        if path == b"/ready":
            return _verdict(ok=health.ready), "application/json", body
        if path == b"/progress":
            return _verdict(ok=health.progressing), "application/json", body
        return "404 Not Found", "text/plain", b"one of /live /ready /progress /metrics\n"


def _verdict(*, ok: bool) -> str:
    return "200 OK" if ok else "503 Service Unavailable"
