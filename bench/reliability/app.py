"""The application of the campaigns. Every kind but `noop` leaves one row in `effect`, which would take a second."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from jobqueue import App, Job, Retry, SyncJob

app = App()

_INSERT = "INSERT INTO public.effect (job_id, attempt) VALUES (%s, %s)"


def _seconds(job: Job[Any] | SyncJob[Any]) -> float:
    return float(job.payload["seconds"])


@app.handler("noop")
async def noop(job: Job[Any]) -> None:
    """Do nothing."""
    del job


@app.handler("async", timeout=20)
async def asynchronous(job: Job[Any]) -> None:
    """Take half of the time before the effect, half of it between effect and acknowledgement."""
    await asyncio.sleep(_seconds(job) / 2)
    async with job.transaction() as tx:
        if await tx.once(f"effect-{job.id}"):
            await tx.execute(_INSERT, (job.id, job.attempt))
        await asyncio.sleep(_seconds(job) / 2)


@app.handler("deferred", timeout=20)
async def deferred(job: Job[Any]) -> None:
    """Commit the effect first and leave the acknowledgement to the worker: a second attempt must skip the effect."""
    async with job.transaction(ack=False) as tx:
        if await tx.once(f"effect-{job.id}"):
            await tx.execute(_INSERT, (job.id, job.attempt))
    await asyncio.sleep(_seconds(job))


def _synchronous(job: SyncJob[Any]) -> None:
    time.sleep(_seconds(job))
    with job.transaction() as tx:
        if tx.once(f"effect-{job.id}"):
            tx.execute(_INSERT, (job.id, job.attempt))


@app.handler("thread", timeout=20)
def thread(job: SyncJob[Any]) -> None:
    """Do the same in a thread."""
    _synchronous(job)


@app.handler("process", timeout=20, process=True)
def process(job: SyncJob[Any]) -> None:
    """Do the same in a child process."""
    _synchronous(job)


@app.handler("retry", timeout=20)
async def retry(job: Job[Any]) -> None:
    """Ask for a second attempt."""
    if job.attempt == 1:
        raise Retry("once more", after=0.05)
    await asynchronous(job)
