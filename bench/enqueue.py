"""How fast jobs come in: one in a transaction of its own, and a thousand in a call."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from bench import ours
from bench.peers import graphile
from bench.rounds import Contest, Contestant, Figure, alternate
from jobqueue import queue
from jobqueue.queue import NewJob

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from bench.server import Server

OURS = "enqueue_many"
SQL = "enqueue_many, called from SQL"
BARE = "bare multi-row INSERT"
GRAPHILE = "graphile-worker addJobs"
SINGLE = "enqueue"
SINGLE_BARE = "bare INSERT"
BATCH = 1000
PLAIN = """
CREATE TABLE plain (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  created_at timestamptz DEFAULT now(),
  payload    jsonb
)
"""


def contests(server: Server, jobs: int, rounds: int) -> list[Contest]:
    """Measure both; every contestant on a database of its own, emptied by nobody (history costs nothing)."""
    ours.prepare(server, "bench_enqueue", 0)
    server.execute(PLAIN, "bench_enqueue")
    conn = server.connect("bench_enqueue", prepare_threshold=None)
    prepared = server.connect("bench_enqueue")
    payload = {"n": 1, "reference": "order-4711"}
    text = json.dumps(payload)

    def rate(step: Callable[[], Any], times: int, each: int) -> dict[str, float]:
        step()
        began = time.perf_counter()
        for _ in range(times):
            step()
        return {"rate": times * each / (time.perf_counter() - began)}

    facts: dict[str, Any] = {"payload": text, "a call": BATCH, "jobs a round": jobs}
    single = [
        Contestant(SINGLE, lambda: rate(lambda: queue.enqueue(conn, ours.CLASS, ours.KIND, payload), jobs // 20, 1)),
        Contestant(
            SINGLE_BARE,
            lambda: rate(lambda: conn.execute("INSERT INTO plain (payload) VALUES (%s::jsonb)", [text]), jobs // 20, 1),
        ),
    ]
    many = [NewJob(ours.CLASS, ours.KIND, payload)] * BATCH

    def bare(on: psycopg.Connection[Any]) -> None:
        on.execute(
            "INSERT INTO plain (payload) SELECT * FROM unnest(%s::text[]::jsonb[])",
            [[json.dumps(payload) for _ in many]],
        )

    bulk = [
        Contestant(OURS, lambda: rate(lambda: queue.enqueue_many(conn, many), jobs // BATCH, BATCH)),
        Contestant(BARE, lambda: rate(lambda: bare(prepared), jobs // BATCH, BATCH)),
        Contestant(
            SQL,
            lambda: rate(
                lambda: conn.execute(
                    "SELECT count(*) FROM jobqueue.enqueue_many(array_fill(%s::text, ARRAY[%s::int]),"
                    " array_fill(%s::text, ARRAY[%s::int]), array_fill(%s::jsonb, ARRAY[%s::int]))",
                    [ours.CLASS, BATCH, ours.KIND, BATCH, text, BATCH],
                ),
                jobs // BATCH,
                BATCH,
            ),
        ),
    ]
    folder = graphile.install()
    if folder is not None:
        graphile.prepare(server, folder, "bench_enqueue_graphile", 0)
        facts["graphile-worker"] = graphile.version(folder)
        bulk.append(
            Contestant(
                GRAPHILE, lambda: {"rate": graphile.enqueue(server, folder, "bench_enqueue_graphile", jobs, BATCH)}
            )
        )
    try:
        return [
            *alternate([Figure("rate", "Enqueue one job in its own transaction", "jobs/s")], single, rounds, facts),
            *alternate([Figure("rate", f"Enqueue {BATCH:,} jobs in a call", "jobs/s")], bulk, rounds, facts),
        ]
    finally:
        conn.close()
        prepared.close()
