"""Asking a worker to drain, over a unix socket: what `jobqueue drain` (a pod's preStop) does, and its server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import structlog

from jobqueue.errors import JobQueueError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

log = structlog.get_logger("jobqueue.worker")

_ASK = b"drain\n"
_DONE = b"drained\n"


class NotDrained(JobQueueError):  # noqa: N818 - reads as a fact, like the others of its tree
    """The worker has not drained: nobody listens, it ended otherwise, or time was up."""


def request(path: Path, timeout: float | None = None) -> None:
    """Drain the worker that listens at `path`; return when it has drained.

    Asking again while it drains only waits with the first. Raises NotDrained after `timeout` seconds (None: never),
    when nobody listens, and when the worker ends otherwise.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(timeout)
        try:
            client.connect(str(path))
            client.sendall(_ASK)
            answer = b""
            while not answer.endswith(b"\n"):
                part = client.recv(64)
                if not part:
                    break
                answer += part
        except TimeoutError:
            raise NotDrained(f"drain: not drained within {timeout:g} s") from None
        except OSError as error:
            raise NotDrained(f"drain: no worker listens at {path}: {error.strerror or error}") from None
    if answer != _DONE:
        raise NotDrained("drain: the worker ended before it said that it had drained")


class DrainServer:
    """Listens for `request`. `drain` begins one (again: nothing) and returns when the worker has drained."""

    def __init__(self, path: Path, drain: Callable[[], Awaitable[None]]) -> None:
        self._path = path
        self._drain = drain
        self._server: asyncio.Server | None = None
        self._answering: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen, unless another live worker does so there already."""
        if await _alive(self._path):
            log.warning("another worker listens for drains; this one is drained by SIGTERM alone", path=str(self._path))
            return
        try:
            self._path.unlink(missing_ok=True)
            self._server = await asyncio.start_unix_server(self._serve, self._path)
            self._path.chmod(0o600)
        except OSError as error:
            log.warning("cannot listen for drains", path=str(self._path), error=error.strerror)

    async def stop(self) -> None:
        """Stop listening, after those who asked have been answered."""
        if self._server is None:
            return
        self._server.close()
        if self._answering:
            await asyncio.wait(self._answering, timeout=1.0)
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    @property
    def asked(self) -> bool:
        """Whether somebody waits for the end of a drain."""
        return bool(self._answering)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        try:
            if await reader.readline() == _ASK:
                if task is not None:
                    self._answering.add(task)
                await self._drain()
                writer.write(_DONE)
                await writer.drain()
        except OSError:
            pass
        finally:
            if task is not None:
                self._answering.discard(task)
            writer.close()


async def _alive(path: Path) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return False
    writer.close()
    return True
