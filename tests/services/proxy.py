"""A TCP proxy in the test's own loop whose connections can be frozen (half-open) or cut."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

Upstream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Proxy:
    port: int
    accepted: int = 0
    unfrozen: asyncio.Event = field(default_factory=asyncio.Event)
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def freeze(self) -> None:
        """Forward nothing more, in either direction, and keep every socket open; new ones are accepted."""
        self.unfrozen.clear()

    def thaw(self) -> None:
        self.unfrozen.set()

    def cut(self) -> None:
        """Close every connection; new ones are forwarded."""
        for writer in list(self.writers):
            writer.close()


@contextlib.asynccontextmanager
async def proxied(dial: Callable[[], Awaitable[Upstream]]) -> AsyncIterator[Proxy]:
    """Listen on a loopback port and forward to what `dial` connects to."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await proxy.unfrozen.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(cast("asyncio.Task[None]", asyncio.current_task()))
        proxy.accepted += 1
        mine = {writer}
        proxy.writers |= mine
        try:
            await proxy.unfrozen.wait()
            up_reader, up_writer = await dial()
            mine.add(up_writer)
            proxy.writers.add(up_writer)
            await asyncio.gather(pump(reader, up_writer), pump(up_reader, writer))
        finally:
            proxy.writers -= mine
            for each in mine:
                each.close()
                with contextlib.suppress(OSError):
                    await each.wait_closed()

    tasks: set[asyncio.Task[None]] = set()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy = Proxy(port=server.sockets[0].getsockname()[1])
    proxy.thaw()
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
        proxy.thaw()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
