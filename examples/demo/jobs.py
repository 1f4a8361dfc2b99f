"""The demo's application: two kinds of work on files, and one job that is poison until somebody repairs it.

Delivery is at least once. Each result is recorded once, because it is an effect in the queue's own database, written in
the transaction that also ends the job.
"""

from __future__ import annotations

import asyncio
import hashlib
import lzma
import os
import signal

import downstream
import pydantic
from inputs import path_of

from jobqueue import App, Job, SyncJob
from jobqueue.outcomes import Dead

TABLES = """
CREATE SCHEMA demo;
-- No unique constraint: an effect that was recorded twice shall be seen, not prevented.
CREATE TABLE demo.result (kind text, round integer, number integer, size bigint, answer text, job bigint, attempt int);
CREATE TABLE demo.poison (repaired boolean NOT NULL);
INSERT INTO demo.poison VALUES (false);
"""
RECORD = "INSERT INTO demo.result VALUES (%s, %s, %s, %s, %s, %s, %s)"
CHUNK = 65_536
STORED_AFTER = 0.1
"""Seconds that whoever keeps the digests would take to answer: a class that waits needs slots, not cores."""

app = App()


class Work(pydantic.BaseModel):
    """A reference to a file, never its content. `round` and `number` name the result."""

    round: int
    number: int
    uri: str


class Poison(pydantic.BaseModel):
    """Nothing to know."""


@app.handler("file.hash", class_="fast", timeout=10)
async def hash_file(job: Job[Work]) -> None:
    """Hash a file. Many run at once in one event loop; reading and hashing happen in threads."""
    work = job.payload
    size, answer = await asyncio.to_thread(_hash, work.uri)
    await asyncio.sleep(STORED_AFTER)
    async with job.transaction() as tx:
        if await tx.once(f"demo-hash-{work.round}-{work.number}"):
            await tx.execute(RECORD, (job.kind, work.round, work.number, size, answer, job.id, job.attempt))


@app.handler("file.compress", class_="slow", timeout=15, process=True)
def compress_file(job: SyncJob[Work]) -> None:
    """Compress a file and measure it: a process of its own for each slot, and one unit of the downstream."""
    work = job.payload
    with downstream.session(os.environ["DEMO_DOWNSTREAM"]):
        size, answer = _compress(work.uri)
    with job.transaction() as tx:
        if tx.once(f"demo-compress-{work.round}-{work.number}"):
            tx.execute(RECORD, (job.kind, work.round, work.number, size, answer, job.id, job.attempt))


@app.handler("demo.poison", class_="slow", timeout=15, process=True)
def poison(job: SyncJob[Poison]) -> None:
    """Kill the process it runs in, until it is repaired."""
    with job.transaction() as tx:
        row = tx.execute("SELECT repaired FROM demo.poison").fetchone()
        if row is None or not row[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        if tx.once("demo-poison"):
            tx.execute(RECORD, (job.kind, 1, 0, 0, "repaired", job.id, job.attempt))


def _hash(uri: str) -> tuple[int, str]:
    digest = hashlib.sha256()
    size = 0
    try:
        with path_of(uri).open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise Dead(f"the file cannot be read: {error.strerror}") from None
    return size, digest.hexdigest()


def _compress(uri: str) -> tuple[int, str]:
    compressor = lzma.LZMACompressor()
    size = compressed = 0
    try:
        with path_of(uri).open("rb") as file:
            while chunk := file.read(CHUNK):
                compressed += len(compressor.compress(chunk))
                size += len(chunk)
    except OSError as error:
        raise Dead(f"the file cannot be read: {error.strerror}") from None
    return size, str(compressed + len(compressor.flush()))
