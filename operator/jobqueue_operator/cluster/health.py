"""HTTP for the kubelet and Prometheus: /live, /ready, /metrics."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Health:
    """What the endpoints answer."""

    live: bool
    """False when rounds have stopped, though the process runs: it is to be started again."""
    ready: bool
    leading: bool
    rounds: int
    why: str


class HealthServer:
    """Serves until stopped."""

    def __init__(self, port: int, health: Callable[[], Health], metrics: Callable[[], bytes]) -> None:
        self._port = port
        self._health = health
        self._metrics = metrics
        self._runner: web.AppRunner | None = None

    async def start(self) -> int:
        """Listen on all addresses; return the port."""
        app = web.Application()
        app.router.add_get("/live", self._live)
        app.router.add_get("/ready", self._ready)
        app.router.add_get("/metrics", self._scrape)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "0.0.0.0", self._port)  # noqa: S104 - the kubelet asks from outside
        await site.start()
        port: int = self._runner.addresses[0][1]
        return port

    async def stop(self) -> None:
        """Close the port."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _live(self, _: web.Request) -> web.Response:
        found = self._health()
        return _answer(found, ok=found.live)

    async def _ready(self, _: web.Request) -> web.Response:
        found = self._health()
        return _answer(found, ok=found.ready)

    async def _scrape(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


def _answer(found: Health, *, ok: bool) -> web.Response:
    return web.Response(status=200 if ok else 503, text=json.dumps(asdict(found)), content_type="application/json")
