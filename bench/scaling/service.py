"""A stub of what jobs lean on. It counts its callers by itself, and answers later the more of them there are."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Self


class Service:
    """Answers each caller after the seconds it names, times callers over `knee` once there are more than that.

    A caller counts from when it is accepted until it has been answered or its connection has broken.
    """

    def __init__(self, knee: float = float("inf")) -> None:
        self.knee = knee
        self.now = 0
        self.peak = 0
        self.calls = 0
        self.broken = 0
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="service", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._up.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._answer, "127.0.0.1", 0))
        host, port = server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        self._up.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.now += 1
        self.calls += 1
        self.peak = max(self.peak, self.now)
        try:
            seconds = float(await reader.readline())
            gone = asyncio.ensure_future(reader.read())
            await asyncio.wait({gone}, timeout=seconds * max(1.0, self.now / self.knee))
            if gone.done():
                self.broken += 1
            gone.cancel()
        except (ValueError, OSError):
            self.broken += 1
        finally:
            # Counted out before it is told: who has its answer is surely no longer counted.
            self.now -= 1
            with suppress(OSError):
                writer.write(b"done\n")
                await writer.drain()
                writer.close()
