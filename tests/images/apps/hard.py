"""An app that a container's first process has work with: orphans, and jobs that are still running."""

from __future__ import annotations

import asyncio
import subprocess

from jobqueue import App, Job, SyncJob

app = App()


@app.handler("orphan", timeout=20)
def orphan(job: SyncJob[dict[str, str]]) -> None:  # noqa: ARG001 - every handler is given its job
    subprocess.run(["sh", "-c", "sleep 1.5 &"], check=True)


@app.handler("wait", timeout=20)
async def wait(job: Job[dict[str, float]]) -> None:
    await asyncio.sleep(job.payload["seconds"])
