"""A reverse proxy before an API server that ends its client at a chosen write, so that «between» is an exact place.

A write is a POST, PUT, PATCH or DELETE. They are counted from 1 in the order in which they arrive.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import threading
from typing import TYPE_CHECKING, Any, Literal

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path
    from typing import Self

Moment = Literal["unsent", "unanswered"]
"""Whether the client ends before its write reaches the server, or when the server has answered it."""
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_HOP_BY_HOP = frozenset({"connection", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"})
_TURNS = 0.1  # seconds in which the loop lets go of what was closed
_CALL_WITHIN = 10.0  # seconds for a call into the proxy's loop


class WriteProxy:
    """The proxy, in a thread of its own. Use it as a context manager; clients use its `kubeconfig`."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        """Forward to the server of a kubeconfig; the proxy's own is written to the folder."""
        self._theirs = yaml.safe_load(kubeconfig.read_text())
        self._server = self._theirs["clusters"][0]["cluster"]
        self._url = URL(self._server["server"])
        self._folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.answers: list[tuple[str, Any]] = []
        """Path, and body, of each write that the server took; in JSON."""
        self.reached = threading.Event()
        """Set when the client was ended."""
        self._admitted = asyncio.Event()
        self._count = 0
        self._last: tuple[int, Moment] | None = None
        self._end: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        """Start listening. What arrives waits until `admit`."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="write-proxy", daemon=True)
        self._thread.start()
        self._call(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        """Cut everything and end the thread."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_WITHIN)
        self._loop.close()

    def admit(self, last: tuple[int, Moment] | None, end: Callable[[], None]) -> None:
        """Forward from now on. At the write `last` call `end`, and forward nothing more."""
        self._last, self._end = last, end
        self._loop.call_soon_threadsafe(self._admitted.set)

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_WITHIN)

    async def _open(self) -> None:
        trusted = ssl.create_default_context(
            cadata=base64.b64decode(self._server["certificate-authority-data"]).decode()
        )
        self._connector = aiohttp.TCPConnector(ssl=trusted, limit=0)
        self._client = aiohttp.ClientSession(
            auto_decompress=False, connector=self._connector, timeout=aiohttp.ClientTimeout()
        )
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._forward)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        here = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._server |= {"server": here}
        del self._server["certificate-authority-data"]
        self.kubeconfig.write_text(yaml.safe_dump(self._theirs))

    async def _close(self) -> None:
        await self._runner.cleanup()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await self._connector.close(abort_ssl=True)  # a server that is not read from any more says no goodbye
        await self._client.close()
        await asyncio.sleep(_TURNS)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        await self._admitted.wait()
        body = await request.read()
        number = 0
        if request.method in _WRITES:
            self._count += 1
            number = self._count
        if self._last == (number, "unsent"):
            self._stop()
        if self.reached.is_set():
            raise web.HTTPServiceUnavailable
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        url = self._url.join(URL(request.raw_path, encoded=True))
        async with self._client.request(request.method, url, headers=headers, data=body or None) as answer:
            if number:
                said = await answer.read()
                if answer.ok:
                    self.answers.append((request.path, await answer.json()))
                if self._last == (number, "unanswered"):
                    self._stop()
                return web.Response(status=answer.status, headers=_kept(answer), body=said)
            response = web.StreamResponse(status=answer.status, headers=_kept(answer))
            with contextlib.suppress(ConnectionResetError, aiohttp.ClientError):  # a watch ends with its client
                await response.prepare(request)
                async for part in answer.content.iter_any():
                    await response.write(part)
            return response

    def _stop(self) -> None:
        self._end()
        self.reached.set()


def _kept(answer: aiohttp.ClientResponse) -> dict[str, str]:
    dropped = _HOP_BY_HOP | {"content-length"}
    return {name: value for name, value in answer.headers.items() if name.lower() not in dropped}
