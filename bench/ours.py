"""The queue of this repository: a database with jobs, and the loops that work them off without a worker.

Run as a script (`python -m bench.ours drain DSN JOBS BATCH`), with PYTHONPATH naming a checkout, so that another one's
package can be measured in the same run.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from bench.server import Server

ROOT = Path(__file__).resolve().parent.parent
KIND = "noop"
CLASS = "bench"


def prepare(server: Server, database: str, jobs: int, tree: Path = ROOT) -> None:
    """Make the schema of `tree` with `jobs` due rows of class `bench`, kind `noop`."""
    server.create(database)
    script(tree, "migrate", server.dsn(database))
    if jobs:
        fill(server, database, jobs)
    server.settle(database)


def fill(
    server: Server,
    database: str,
    jobs: int,
    kind: str = KIND,
    run_after: str = "null",
    priority: int = 0,
    call: int = 10_000,
) -> None:
    """Enqueue `jobs` jobs with the bulk function, `call` at a time; those of a call are due at one moment."""
    with server.connect(database) as conn:
        for start in range(0, jobs, call):
            conn.execute(
                f"WITH n AS (SELECT n FROM generate_series(%s::int, %s::int) AS g(n))"  # noqa: S608 - constants
                " SELECT count(*) FROM jobqueue.enqueue_many((SELECT array_agg(%s::text) FROM n),"
                " (SELECT array_agg(%s::text) FROM n),"
                f" (SELECT array_agg(jsonb_build_object('n', n)) FROM n), run_afters =>"
                f" (SELECT array_agg(({run_after})::timestamptz) FROM n),"
                " priorities => (SELECT array_agg(%s::int) FROM n))",
                [start + 1, min(start + call, jobs), CLASS, kind, priority],
            )


def script(tree: Path, *args: str) -> str:
    """Run this module in a process of its own, with the package of `tree`."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree / "worker_image"), str(tree / "operator"), str(ROOT)])}
    return subprocess.run(
        [sys.executable, "-m", "bench.ours", *args], env=env, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def drain(server: Server, database: str, jobs: int, batch: int, tree: Path = ROOT) -> dict[str, float]:
    """Work everything off with the SQL functions alone; return jobs a second, and the process's time for one."""
    took, spent = map(float, script(tree, "drain", server.dsn(database), str(jobs), str(batch)).split())
    return {"rate": jobs / took, "client_us": spent / jobs * 1e6}


async def _drain(dsn: str, jobs: int, batch: int) -> tuple[float, float]:
    from jobqueue import queue  # noqa: PLC0415 - of the tree that PYTHONPATH names

    async def connect() -> psycopg.AsyncConnection[tuple[object, ...]]:
        return await psycopg.AsyncConnection.connect(dsn, autocommit=True, prepare_threshold=None)

    claims, acks = await connect(), await connect()
    me = (await queue.register_worker(claims, f"bench-{os.getpid()}", CLASS, [(KIND, 1)], slots=100)).worker
    waiting: asyncio.Queue[list[queue.Claimed] | None] = asyncio.Queue(maxsize=4)

    async def claim() -> None:
        request, floor = 0, None
        while True:
            request += 1
            rows = await queue.claim(claims, CLASS, me, request, max_jobs=batch, floor=floor)
            await waiting.put(rows or None)
            if not rows:
                return
            floor = min(row.due_at for row in rows) if len(rows) == batch else None

    async def acknowledge() -> int:
        done = 0
        while (rows := await waiting.get()) is not None:
            answers = await queue.complete_many(acks, [r.id for r in rows], [r.token for r in rows])
            done += sum(a.result == "done" for a in answers)
        return done

    began, before = time.perf_counter(), time.process_time()
    _, done = await asyncio.gather(claim(), acknowledge())
    took, spent = time.perf_counter() - began, time.process_time() - before
    await claims.close()
    await acks.close()
    if done != jobs:
        msg = f"worked off {done} of {jobs} jobs"
        raise AssertionError(msg)
    return took, spent


def _migrate(dsn: str) -> None:
    from jobqueue import migrate  # noqa: PLC0415 - of the tree that PYTHONPATH names

    with psycopg.connect(dsn, autocommit=True) as conn:
        migrate.apply(conn)
        conn.execute("SELECT jobqueue.maintain()")
        conn.execute("SELECT jobqueue.set_class(null, %s, '{}')", [CLASS])


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "migrate":
        _migrate(rest[0])
    else:
        print(*asyncio.run(_drain(rest[0], int(rest[1]), int(rest[2]))))
