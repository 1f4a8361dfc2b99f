"""What a transaction held open elsewhere (a report, a forgotten session) costs: what it could still see stays."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg

from bench import ours
from bench.report import Table
from jobqueue import queue

if TYPE_CHECKING:
    from bench.server import Server

BATCH = 500
CALL = 10_000  # jobs an enqueue: their rows must be told apart by a claim that steps over what is dead


def table(server: Server, seconds: float) -> Table:
    """Drain for `seconds` freely, then under a REPEATABLE READ snapshot; the last quarter of each counts."""
    result = Table(
        f"Drain under a REPEATABLE READ transaction held open {seconds:g} s",
        ["", "jobs/s over all", "jobs/s in the last quarter", "worked off", "claim p50 ms in the last quarter"],
    )
    last: list[float] = []
    for title, hold in (("free", False), ("held", True)):
        ours.prepare(server, "bench_held", 0)
        with psycopg.connect(server.dsn("bench_held")) as holder:
            if hold:
                holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                holder.execute("SELECT count(*) FROM jobqueue.ready")
            whole, quarter, done, p50 = _churn(server, seconds)
            holder.rollback()
        last.append(quarter)
        result.rows.append([title, f"{whole:,.0f}", f"{quarter:,.0f}", f"{done:,}", f"{p50:.2f}"])
    result.notes = [f"held / free in the last quarter: {last[1] / last[0]:.2f}"]
    return result


def _churn(server: Server, seconds: float) -> tuple[float, float, int, float]:
    """Keep some 20,000 jobs waiting: enqueue, claim, complete; only claiming and completing is timed."""
    marks: list[tuple[float, float, float]] = []  # when, seconds of claim + complete, seconds of the claim
    with server.connect("bench_held", prepare_threshold=None) as conn:
        me = queue.register_worker(conn, "bench-held", ours.CLASS, [(ours.KIND, 1)], slots=BATCH).worker
        ours.fill(server, "bench_held", 20_000, call=CALL)
        began = time.monotonic()
        request, floor, looked, look = 0, None, began, 0.0
        while (now := time.monotonic()) - began < seconds:
            if request % 20 == 0:
                ours.fill(server, "bench_held", 20 * BATCH, call=CALL)
            request += 1
            if now - looked > max(1.0, 20 * look):  # as a worker does
                floor, looked = None, now
            start = time.perf_counter()
            jobs = queue.claim(conn, ours.CLASS, me, request, max_jobs=BATCH, floor=floor)
            between = time.perf_counter()
            if floor is None:
                look = between - start
            queue.complete_many(conn, [j.id for j in jobs], [j.token for j in jobs])
            end = time.perf_counter()
            floor = min(j.due_at for j in jobs)
            marks.append((now - began, end - start, between - start))
    late = [m for m in marks if m[0] > seconds * 0.75]
    p50 = sorted(m[2] for m in late)[len(late) // 2] * 1000
    whole = BATCH * len(marks) / sum(m[1] for m in marks)
    return whole, BATCH * len(late) / sum(m[1] for m in late), BATCH * len(marks), p50
