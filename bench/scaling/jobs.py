"""The jobs of the campaigns: call the service, or take the worker down."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from jobqueue import App, Job

app = App()


@app.handler("call", version=1, timeout=15)
async def call(job: Job[dict[str, Any]]) -> None:
    """Lean on the service for as long as the payload says."""
    host, port = os.environ["SERVICE"].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"{job.payload['seconds']}\n".encode())
        if await reader.readline() != b"done\n":
            raise ConnectionError("the service did not answer")
    finally:
        writer.close()


@app.handler("crash", version=1, timeout=15)
async def crash(_job: Job[dict[str, Any]]) -> None:
    """End the process that runs it, as a fault in native code does."""
    os._exit(9)
