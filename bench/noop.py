"""The app of the measured workers. `noop` does nothing; `note` says when it started, for the wake-up's latency."""

from __future__ import annotations

import asyncio
import os
import time

from jobqueue import App, Job

app = App()


@app.handler("noop")
async def noop(_job: Job[dict[str, int]]) -> None:
    """Do nothing."""


@app.handler("wait")
async def wait(job: Job[dict[str, int]]) -> None:
    """Wait as many milliseconds as the payload says, as a handler that waits for a reply does."""
    await asyncio.sleep(job.payload["milliseconds"] / 1000)


@app.handler("note")
async def note(job: Job[dict[str, int]]) -> None:
    """Write when it started (CLOCK_MONOTONIC, nanoseconds) to the pipe the benchmark reads."""
    started = time.monotonic_ns()
    with open(os.environ["BENCH_NOTES"], "a", encoding="ascii") as notes:  # noqa: ASYNC230, PTH123 - a few bytes
        notes.write(f"{job.payload['n']} {started}\n")
