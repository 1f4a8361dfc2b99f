"""What one claim takes, whatever waits behind it; and one snapshot; and renewing many leases."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from bench import ours
from bench.report import Table
from jobqueue import queue

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from bench.server import Server

CLAIM_OF = 10  # jobs a claim, as a worker with few slots asks for


def tables(server: Server, rows: int, claims: int, leases: tuple[int, ...]) -> list[Table]:
    """Measure claims with 1,000 and with `rows` rows waiting, plain or hidden behind others."""
    table = Table(
        f"Claim and complete {CLAIM_OF} jobs, one after the other",
        ["waiting", "claim p50 ms", "claim p99 ms", "complete p50 ms", "p99 against 1,000 due"],
    )
    snapshots = Table("snapshot()", ["waiting", "p50 ms", "p99 ms"])
    base = 0.0
    for title, fill in _backlogs(rows):
        ours.prepare(server, "bench_claim", 0)
        fill(server)
        server.settle("bench_claim")
        with server.connect("bench_claim", prepare_threshold=None) as conn:
            claimed, completed = _claims(conn, claims)
            base = base or _p(claimed, 99)
            table.rows.append(
                [
                    title,
                    f"{_p(claimed, 50):.2f}",
                    f"{_p(claimed, 99):.2f}",
                    f"{_p(completed, 50):.2f}",
                    f"{_p(claimed, 99) / base:.2f}",
                ]
            )
            seen = [_timed(lambda c=conn: queue.snapshot(c)) for _ in range(30)]  # type: ignore[misc]
            snapshots.rows.append([title, f"{_p(seen, 50):.1f}", f"{_p(seen, 99):.1f}"])
    table.notes = [f"{claims} claims each; every claim a new transaction; autovacuum on"]
    return [table, snapshots, _heartbeats(server, leases)]


def _backlogs(rows: int) -> list[tuple[str, Callable[[Server], None]]]:
    def due(server: Server, number: int) -> None:
        ours.fill(server, "bench_claim", number)

    def behind_unsupported(server: Server) -> None:
        ours.fill(server, "bench_claim", rows, kind="nobody", run_after="now() - interval '1 hour'")
        due(server, 10_000)

    def behind_scheduled(server: Server) -> None:
        ours.fill(server, "bench_claim", rows, run_after="now() + interval '1 day'", priority=10)
        due(server, 10_000)

    return [
        ("1,000 due", lambda s: due(s, 10_000)),
        (f"{rows:,} due", lambda s: due(s, rows)),
        (f"10,000 due behind {rows:,} of an unknown kind", behind_unsupported),
        (f"10,000 due behind {rows:,} scheduled of a better priority", behind_scheduled),
    ]


def _claims(conn: psycopg.Connection[Any], claims: int) -> tuple[list[float], list[float]]:
    me = queue.register_worker(conn, "bench-claims", ours.CLASS, [(ours.KIND, 1)], slots=CLAIM_OF).worker
    claimed: list[float] = []
    completed: list[float] = []
    for request in range(1, claims + 1):
        began = time.perf_counter()
        jobs = queue.claim(conn, ours.CLASS, me, request, max_jobs=CLAIM_OF)
        between = time.perf_counter()
        queue.complete_many(conn, [j.id for j in jobs], [j.token for j in jobs])
        claimed.append((between - began) * 1000)
        completed.append((time.perf_counter() - between) * 1000)
        if len(jobs) != CLAIM_OF:
            msg = f"claim {request} found {len(jobs)} jobs"
            raise AssertionError(msg)
    return claimed, completed


def _heartbeats(server: Server, leases: tuple[int, ...]) -> Table:
    table = Table("Renew leases in one call", ["leases", "p50 ms", "p99 ms", "µs a lease"])
    ours.prepare(server, "bench_leases", max(leases))
    with server.connect("bench_leases", prepare_threshold=None) as conn:
        me = queue.register_worker(conn, "bench-leases", ours.CLASS, [(ours.KIND, 1)], slots=10_000).worker
        held: list[queue.Claimed] = []
        request = 0
        while len(held) < max(leases):
            request += 1
            held += queue.claim(conn, ours.CLASS, me, request, max_jobs=1000)
        for number in leases:
            ids, tokens = [h.id for h in held[:number]], [h.token for h in held[:number]]

            def renew(ids: list[int] = ids, tokens: list[int] = tokens) -> None:
                for row in queue.extend(conn, me, ids, tokens):
                    if row.result != "extended":
                        raise AssertionError(row)

            took = [_timed(renew) for _ in range(30)]
            table.rows.append(
                [f"{number:,}", f"{_p(took, 50):.1f}", f"{_p(took, 99):.1f}", f"{_p(took, 50) / number * 1000:.1f}"]
            )
    return table


def _timed(step: Callable[[], Any]) -> float:
    began = time.perf_counter()
    step()
    return (time.perf_counter() - began) * 1000


def _p(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
