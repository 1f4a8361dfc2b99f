"""The application that the workers of these tests run. What happens is written to the table `seen`."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import signal
import subprocess
import time
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import psycopg
import pydantic

from jobqueue import App, Dead, Job, Retry, Snooze, StaleLease, SyncJob

app = App()


class Number(pydantic.BaseModel):
    n: int


def mark(job: Job[Any] | SyncJob[Any], what: str) -> None:
    """Write to `seen` on a connection of its own: it stays whatever becomes of the handler."""
    with psycopg.connect(os.environ["TEST_DSN"], autocommit=True) as connection:
        connection.execute(
            "INSERT INTO seen (job_id, attempt, what, pid, actor) VALUES (%s, %s, %s, %s, %s)",
            (job.id, job.attempt, what, os.getpid(), job.actor_id),
        )


@app.authorize
def authorize(job: SyncJob[Any]) -> Any:
    if job.actor_id == "mallory":
        return False
    if job.actor_id == "unknown":
        raise PermissionError("no such actor")
    if job.actor_id == "forgetful":
        return None
    return True


@app.handler("noop")
async def noop(job: Job[Any]) -> None:
    del job


@app.handler("model")
async def model(job: Job[Number]) -> None:
    mark(job, f"n={job.payload.n}")


class Odd(BaseException):
    """Neither an Exception nor one of Python's own."""


@app.handler("odd")
async def odd(job: Job[Any]) -> None:
    mark(job, "start")
    if job.payload["how"] == "base":
        raise Odd("odd")
    if job.payload["how"] == "generator-exit":
        raise GeneratorExit
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(1)


def plainly(function: Any) -> Any:
    """Wrap an async def so that nobody can tell."""

    @functools.wraps(function)
    def call(job):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return function(job)

    del call.__wrapped__
    return call


async def _unseen(job: Any) -> None:
    mark(job, "start")


app.handler("unseen")(plainly(_unseen))
app.handler("process.unseen", process=True)(plainly(_unseen))


left: ContextVar[str] = ContextVar("left", default="clean")


@app.handler("context")
async def context(job: Job[Any]) -> None:
    mark(job, left.get())
    left.set("dirty")


@app.handler("thread.context")
@app.handler("process.context", process=True)
def sync_context(job: SyncJob[Any]) -> None:
    mark(job, left.get())
    left.set("dirty")


@app.handler("wait", timeout=20)
async def wait(job: Job[Any]) -> None:
    mark(job, "start")
    await asyncio.sleep(job.payload.get("seconds", 0))
    mark(job, "end")


@app.handler("wait.short", timeout=1)
async def wait_short(job: Job[Any]) -> None:
    mark(job, "start")
    await asyncio.sleep(60)


@app.handler("wait.stubborn", timeout=1)
async def wait_stubborn(job: Job[Any]) -> None:
    mark(job, "start")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        mark(job, "cancelled")


@app.handler("thread.wait", timeout=20)
def thread_wait(job: SyncJob[Any]) -> None:
    mark(job, "start")
    time.sleep(job.payload.get("seconds", 0))
    mark(job, "end")


@app.handler("thread.short", timeout=1)
def thread_short(job: SyncJob[Any]) -> None:
    mark(job, "start")
    time.sleep(60)


@app.handler("process.wait", timeout=20, process=True)
def process_wait(job: SyncJob[Any]) -> None:
    mark(job, "start")
    time.sleep(job.payload.get("seconds", 0))
    mark(job, "end")


@app.handler("process.family", timeout=5, process=True)
def process_family(job: SyncJob[Any]) -> None:
    """Start one process in the group and one that leaves it, then wait."""
    one = subprocess.Popen(["sleep", "600"])
    two = subprocess.Popen(["sleep", "600"], start_new_session=True)
    mark(job, f"family {one.pid} {two.pid}")
    time.sleep(60)


@app.handler("regex", timeout=6)
async def regex(job: Job[Any]) -> None:
    mark(job, "start")
    re.match(r"(a+)+$", "a" * 60 + "b")  # holds the interpreter for ages


@app.handler("thread.regex", timeout=6)
def thread_regex(job: SyncJob[Any]) -> None:
    mark(job, "start")
    re.match(r"(a+)+$", "a" * 60 + "b")


@app.handler("poison")
async def poison(job: Job[Any]) -> None:
    mark(job, "start")
    os.kill(os.getpid(), signal.SIGKILL)


@app.handler("exit", process=True)
def exit_(job: SyncJob[Any]) -> None:
    mark(job, "start")
    os._exit(3)


@app.handler("system-exit")
async def system_exit(job: Job[Any]) -> None:
    del job
    raise SystemExit(9)


@app.handler("fail")
async def fail(job: Job[Any]) -> None:
    mark(job, "start")
    raise ValueError("it broke \0 \ud800" + "x" * 5000)


@app.handler("retry")
async def retry(job: Job[Any]) -> None:
    mark(job, "start")
    if job.attempt == 1:
        raise Retry("again", after=0)


@app.handler("dead")
async def dead(job: Job[Any]) -> None:
    mark(job, "start")
    raise Dead("never")


@app.handler("snooze")
async def snooze(job: Job[Any]) -> None:
    mark(job, "start")
    if job.payload.get("seen") or job.state is not None:
        return
    await job.checkpoint({"seen": True})
    raise Snooze(timedelta(0))


@app.handler("transaction", timeout=20)
async def transaction(job: Job[Any]) -> None:
    async with job.transaction() as tx:
        if await tx.once(f"effect-{job.id}"):
            await tx.execute("INSERT INTO effects VALUES (%s, %s)", (job.id, job.attempt))
        if seconds := job.payload.get("seconds"):
            mark(job, "inside")
            await asyncio.sleep(seconds)
    mark(job, "committed")
    if job.payload.get("raise"):
        raise RuntimeError("after the commit")


@app.handler("transaction.thread", timeout=20)
def transaction_thread(job: SyncJob[Any]) -> None:
    with job.transaction() as tx:
        if tx.once(f"effect-{job.id}"):
            tx.execute("INSERT INTO effects VALUES (%s, %s)", (job.id, job.attempt))
    mark(job, "committed")


@app.handler("transaction.process", timeout=20, process=True)
def transaction_process(job: SyncJob[Any]) -> None:
    transaction_thread(job)


@app.handler("effect-key")
async def effect_key(job: Job[Any]) -> None:
    mark(job, job.effect_key("charge"))
    if job.attempt == 1:
        raise Retry(after=0)


@app.handler("cancellable", timeout=20)
def cancellable(job: SyncJob[Any]) -> None:
    mark(job, "start")
    for _ in range(1000):
        if job.cancelled:
            mark(job, "saw the cancellation")
            raise RuntimeError("stopped")
        time.sleep(0.02)


@app.handler("transaction.own")
async def transaction_own(job: Job[Any]) -> None:
    """On a connection of the handler's own: first one that is busy, then an idle one."""
    async with await psycopg.AsyncConnection.connect(os.environ["TEST_DSN"]) as connection:
        await connection.execute("SELECT 1")
        try:
            async with job.transaction(connection):
                raise AssertionError
        except RuntimeError as error:
            mark(job, str(error))
        await connection.rollback()
        async with job.transaction(connection) as tx:
            assert tx.connection is connection
            await tx.execute("INSERT INTO effects VALUES (%s, %s)", (job.id, job.attempt))
    try:
        async with job.transaction():
            pass
    except StaleLease:
        mark(job, "nothing after the acknowledgement")


@app.handler("transaction.unacknowledged")
async def transaction_unacknowledged(job: Job[Any]) -> None:
    """Two effects, each committed for itself; the second attempt skips the first."""
    async with job.transaction(ack=False) as tx:
        if await tx.once(f"first-{job.id}"):
            await tx.execute("INSERT INTO effects VALUES (%s, %s)", (job.id, job.attempt))
    if job.attempt == 1:
        raise Retry(after=0)


@app.handler("transaction.broken")
async def transaction_broken(job: Job[Any]) -> None:
    async with job.transaction() as tx:
        await tx.once(f"effect-{job.id}")
        await tx.execute("INSERT INTO effects VALUES (%s, %s)", (job.id, job.attempt))
        if job.attempt == 1:
            raise ValueError("rolled back")
