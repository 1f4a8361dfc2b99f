"""Measure the queue beside others on a PostgreSQL of this run's own, print tables, write JSON to bench/results/."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bench import claim, cluster, drain, enqueue, held, limit, plan, report, wakeup
from bench.server import started

if TYPE_CHECKING:
    from bench.server import Server

WHAT = ("drain", "enqueue", "claim", "wakeup", "held", "limit", "plan", "cluster")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "what", nargs="*", choices=[*WHAT, []], help=f"which of {', '.join(WHAT)}; all when none is named"
    )
    parser.add_argument(
        "--quick", action="store_true", help="small numbers: does it run, what is the order of magnitude"
    )
    parser.add_argument("--jobs", type=int, help="jobs a round of drain and enqueue (default 200,000)")
    parser.add_argument("--rows", type=int, help="rows waiting in claim (default 1,000,000)")
    parser.add_argument("--rounds", type=int, help="rounds in which the contestants take turns (default 3)")
    parser.add_argument("--seconds", type=float, help="how long held holds its transaction (default 60)")
    parser.add_argument("--queues", type=int, help="JobQueues in cluster (default 1,000)")
    parser.add_argument("--only", default="", help="contestants of drain: worker,sql,graphile,seeds (default all)")
    parser.add_argument(
        "--against", type=Path, help="another checkout, whose worker and SQL are measured in the same run"
    )
    parser.add_argument("--pg", default="18", help="PostgreSQL's major version: 18 (embedded) or Debian's (default 18)")
    return parser.parse_args()


def main() -> None:
    """Run what the command line names."""
    arguments = _arguments()
    with started(arguments.pg) as server:
        around = report.circumstances(server)
        for what in arguments.what or WHAT:
            _measure(what, server, arguments, around)


def _measure(what: str, server: Server, arguments: argparse.Namespace, around: dict[str, object]) -> None:
    quick = arguments.quick
    rounds = arguments.rounds or (1 if quick else 3)
    jobs = arguments.jobs or (20_000 if quick else 200_000)
    rows = arguments.rows or (50_000 if quick else 1_000_000)
    if what == "drain":
        only = {name for name in arguments.only.split(",") if name}
        contests = drain.contests(server, jobs, rounds, only, arguments.against)
        tables = [report.contest_table(c, [drain.GRAPHILE, drain.SEEDS]) for c in contests]
        report.write(what, report.joined(tables), contests, around)
    elif what == "enqueue":
        contests = enqueue.contests(server, min(jobs, 100_000), rounds)
        tables = [report.contest_table(c, [enqueue.GRAPHILE, enqueue.BARE, enqueue.SINGLE_BARE]) for c in contests]
        report.write(what, tables, contests, around)
    elif what == "claim":
        report.write(what, claim.tables(server, rows, 100 if quick else 500, (100, 1_000, 10_000)), [], around)
    elif what == "wakeup":
        report.write(what, [wakeup.table(server, 20 if quick else 150)], [], around)
    elif what == "limit":
        contests = limit.contests(server, min(jobs, 100_000), rounds)
        report.write(what, [report.contest_table(c, [limit.FREE]) for c in contests], contests, around)
    elif what == "cluster":
        queues = arguments.queues or (50 if quick else 1_000)
        report.write(what, [cluster.table(queues, 30 if quick else 120)], [], around)
    elif what == "plan":
        report.write(what, [plan.table()], [], around)
    else:
        report.write(what, [held.table(server, arguments.seconds or (10 if quick else 60))], [], around)
