"""What keeping a downstream's limit costs: claims beside each other, with no downstream, with one, and at its limit."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING

import psycopg

from bench import ours
from bench.rounds import Contestant, Figure, alternate
from jobqueue import queue

if TYPE_CHECKING:
    from bench.rounds import Contest
    from bench.server import Server

DATABASE = "bench_limit"
FREE = "no downstream"
WORKERS = 8
LOOK = 0.02  # seconds between two counts of the leases
LIMITS = (("a limit that binds nobody", 1_000_000), ("a limit of half of what all want", 1 / 2))


def contests(server: Server, jobs: int, rounds: int) -> list[Contest]:
    """Work `jobs` jobs off by eight connections, with few and with many jobs a claim."""
    found: list[Contest] = []
    for batch in (10, 100):
        figures = [
            Figure("rate", f"Claim and complete, {WORKERS} connections, {batch} jobs a claim", "jobs/s"),
            Figure("held", f"In flight, mean, of {WORKERS} x {batch} slots", "units"),
            Figure("peak", f"In flight, most, of {WORKERS} x {batch} slots", "units"),
        ]
        contestants = [_contestant(server, FREE, None, jobs, batch)]
        for name, share in LIMITS:
            limit = int(share) if share > 1 else int(WORKERS * batch * share)
            contestants.append(_contestant(server, name, limit, jobs, batch))
        found += alternate(figures, contestants, rounds)
    return found


def _contestant(server: Server, name: str, limit: int | None, jobs: int, batch: int) -> Contestant:
    def prepare() -> None:
        ours.prepare(server, DATABASE, jobs)
        if limit is not None:
            with server.connect(DATABASE) as conn:
                queue.set_downstream(conn, None, "downstream", limit)
                queue.set_class(conn, None, ours.CLASS, {"downstream": "downstream", "units_per_job": 1})

    return Contestant(name, lambda: asyncio.run(_drain(server.dsn(DATABASE), jobs, batch, limit)), prepare)


async def _drain(dsn: str, jobs: int, batch: int, limit: int | None) -> dict[str, float]:
    done = 0
    seen: list[int] = []

    async def work(number: int) -> None:
        nonlocal done
        conn = await psycopg.AsyncConnection.connect(dsn, autocommit=True, prepare_threshold=None)
        async with conn:
            me = (
                await queue.register_worker(conn, f"bench-{number}", ours.CLASS, [(ours.KIND, 1)], slots=batch)
            ).worker
            request = 0
            while done < jobs:
                request += 1
                rows = await queue.claim(conn, ours.CLASS, me, request, max_jobs=batch)
                if not rows:
                    await asyncio.sleep(0.001)  # the others hold all there is; a worker waits longer
                    continue
                answers = await queue.complete_many(conn, [r.id for r in rows], [r.token for r in rows])
                done += sum(a.result == "done" for a in answers)

    async def watch() -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
            while done < jobs:
                row = await (await conn.execute("SELECT count(*) FROM jobqueue.lease")).fetchone()
                seen.append(row[0] if row else 0)
                await asyncio.sleep(LOOK)

    began = time.perf_counter()
    watching = asyncio.ensure_future(watch())
    await asyncio.gather(*(work(number) for number in range(WORKERS)))
    took = time.perf_counter() - began
    await watching
    if done != jobs:
        raise AssertionError(f"worked off {done} of {jobs} jobs")
    if limit is not None and max(seen) > limit:
        raise AssertionError(f"{max(seen)} units at once under a limit of {limit}")
    return {"rate": jobs / took, "held": statistics.mean(seen), "peak": max(seen)}
