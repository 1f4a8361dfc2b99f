"""What the jobs of the scenarios do: nothing for a while, or that with a record of it in a table of their own.

    CREATE TABLE call (job bigint, attempt int, worker text, began timestamptz, ended timestamptz)

Its times are the database's, each committed by itself: how many ran at once can be counted afterwards, and a worker
that was killed leaves a call without an end.
"""

from __future__ import annotations

import asyncio
import os

import pydantic

from jobqueue import App, Job, connect

app = App()


class Span(pydantic.BaseModel):
    """How long to take."""

    seconds: float


@app.handler("pause", timeout=30)
async def pause(job: Job[Span]) -> None:
    """Take a while."""
    await asyncio.sleep(job.payload.seconds)


@app.handler("call", timeout=30)
async def call(job: Job[Span]) -> None:
    """Take a while, and record when it began and when it ended."""
    worker = os.environ["JOBQUEUE_WORKER_NAME"]
    async with await connect.open_async(connect.resolve()) as connection:
        begun = "INSERT INTO call VALUES (%s, %s, %s, clock_timestamp(), NULL)"
        await connection.execute(begun, [job.id, job.attempt, worker])
    await asyncio.sleep(job.payload.seconds)
    async with await connect.open_async(connect.resolve()) as connection:
        ended = "UPDATE call SET ended = clock_timestamp() WHERE job = %s AND worker = %s AND ended IS NULL"
        await connection.execute(ended, [job.id, worker])
