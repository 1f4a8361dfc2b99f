"""How fast no-op jobs are worked off, next to others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench import cpu, ours, workers
from bench.peers import graphile, seeds
from bench.rounds import Contest, Contestant, Figure, alternate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.server import Server

WORKER = "one worker process"
GRAPHILE = "graphile-worker, local queue"
SEEDS = "bare SQL, one table"
SQL = "our SQL functions alone"
RUN = "bench_run"
BATCH = 500
FIGURES = (
    Figure("rate", "Drain: no-op jobs through one process", "jobs/s"),
    Figure("server_us", "Processor time of the database for one job", "µs"),
    Figure("client_us", "Processor time of the process for one job", "µs"),
)


def contests(  # noqa: C901 - one branch for each contestant
    server: Server, jobs: int, rounds: int, only: set[str], against: Path | None
) -> list[Contest]:
    """Measure every contestant, or those whose short names are in `only` (worker, sql, graphile, seeds)."""
    contestants: list[Contestant] = []
    facts: dict[str, object] = {
        "jobs": jobs,
        "worker": f"`jobqueue worker`, {workers.SLOTS} slots, all else as it comes",
        "our SQL": f"batches of {BATCH}, claim and completion on a connection each",
        "bare SQL": f"batches of {seeds.BATCH}, one connection",
    }

    def add(name: str, template: str, run: Callable[[], dict[str, float]]) -> None:
        def fresh() -> None:
            server.create(RUN, template)
            server.execute("CHECKPOINT")

        def measured() -> dict[str, float]:
            before = cpu.settled(server.pid)
            found = run()
            return {**found, "server_us": (cpu.settled(server.pid) - before) / jobs * 1e6}

        contestants.append(Contestant(name, measured, fresh))

    def wanted(short: str) -> bool:
        return not only or short in only

    for tree, suffix in ((ours.ROOT, ""), *(((against, f", {against.name}"),) if against else ())):
        if wanted("worker") or wanted("sql"):
            ours.prepare(server, f"bench_ours{len(suffix)}", jobs, tree)
        if wanted("worker"):
            add(
                WORKER + suffix,
                f"bench_ours{len(suffix)}",
                lambda tree=tree: workers.drain(server, RUN, jobs, tree=tree),  # type: ignore[misc]
            )
        if wanted("sql"):
            add(
                SQL + suffix,
                f"bench_ours{len(suffix)}",
                lambda tree=tree: ours.drain(server, RUN, jobs, BATCH, tree),  # type: ignore[misc]
            )
    folder = graphile.install() if wanted("graphile") else None
    if folder is not None:
        facts["graphile-worker"] = (
            f"{graphile.version(folder)}, concurrency {graphile.CONCURRENCY}, local queue {graphile.LOCAL_QUEUE}, "
            "completions batched, log silenced"
        )
        graphile.prepare(server, folder, "bench_graphile", jobs)
        add(GRAPHILE, "bench_graphile", lambda: graphile.drain(server, folder, RUN, jobs))
    elif wanted("graphile"):
        facts["graphile-worker"] = "not measured: no node, or npm could not install it"
    if wanted("seeds"):
        seeds.prepare(server, "bench_seeds", jobs)
        add(SEEDS, "bench_seeds", lambda: seeds.drain(server.dsn(RUN), jobs))
    return alternate(FIGURES, contestants, rounds, facts)
