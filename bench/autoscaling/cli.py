"""Run the planner and other autoscalers on the same drawn workloads, print tables, write JSON and plots."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from bench.autoscaling import tables
from bench.autoscaling.contest import matches, play_all
from bench.autoscaling.load import StartDelay
from bench.autoscaling.oracle import tuned
from bench.autoscaling.plots import draw
from bench.autoscaling.workloads import NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.autoscaling.contest import Played
    from bench.report import Table

RESULTS = Path(__file__).resolve().parents[1] / "results"
QUICK = ("steady", "step up", "pareto", "batch drops", "idle gaps", "overload")
DELAYS = (8.0, 30.0)


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.autoscaling", description=__doc__)
    parser.add_argument("workloads", nargs="*", metavar="workload", help=f"which of: {', '.join(NAMES)} (default all)")
    parser.add_argument("--quick", action="store_true", help="a few workloads, one seed, no oracle, no plots")
    parser.add_argument("--seeds", type=int, nargs="+", help="seeds of the workloads (default 1 2)")
    parser.add_argument("--delays", type=float, nargs="+", default=list(DELAYS), help="start delays, s (default 8 30)")
    parser.add_argument("--spread", type=float, default=0.0, help="sigma of lognormal start delays (default 0: fixed)")
    parser.add_argument("--no-oracle", action="store_true", help="leave out the search for the others' best parameters")
    parser.add_argument("--only-planner", action="store_true", help="the planner beside always at cap alone")
    parser.add_argument("--no-plots", action="store_true", help="leave out the plots")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="processes (default: processors)")
    parser.add_argument(
        "--output", type=Path, default=RESULTS, help="folder for JSON and plots (default bench/results)"
    )
    found = parser.parse_args(words)
    if unknown := set(found.workloads) - set(NAMES):
        parser.error(f"workload: {min(unknown)!r} is none of {', '.join(NAMES)}")
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Run what the command line names; return 0, whatever the figures are."""
    asked = _arguments(words)
    began, busy = time.monotonic(), os.getloadavg()[0]
    names = asked.workloads or (QUICK if asked.quick else NAMES)
    seeds = asked.seeds or ([1] if asked.quick else [1, 2])
    delays = [StartDelay(delay, asked.spread) for delay in asked.delays]
    tune = not (asked.quick or asked.no_oracle or asked.only_planner)
    wanted = matches(names, seeds, delays, tune=tune, only_ours=asked.only_planner)
    print(f"seeds {' '.join(map(str, seeds))}; workloads: {', '.join(names)}")
    print(f"start delays {', '.join(f'{d:g} s' for d in asked.delays)}, sigma {asked.spread:g}")
    done = 0

    def told(played: Played) -> None:
        nonlocal done
        done += 1
        if sys.stderr.isatty():
            print(f"\r{done}/{len(wanted)} {played.match.workload:20}", end="", file=sys.stderr, flush=True)

    everything = play_all(wanted, asked.processes, told)
    by_delay = [tuned([p for p in everything if p.match.delay == delay]) for delay in delays]
    played = [p for group in by_delay for p in group]
    laid_out: list[Table] = []
    for delay, of_delay in zip(delays, by_delay, strict=True):
        laid_out += [
            *tables.of_delay(of_delay, f"{delay.typical:g} s"),
            tables.verdict(of_delay, f"{delay.typical:g} s"),
        ]
    if len(delays) > 1:
        laid_out.append(tables.verdict(played, "both" if len(delays) == 2 else "all"))
    for table in laid_out:
        print("\n" + table.markdown())
    if not (asked.quick or asked.no_plots or asked.only_planner):
        for file in draw(played, asked.output, asked.processes):
            print(f"drawn: {file}", file=sys.stderr)
    _write(asked, seeds, played, laid_out, (time.monotonic() - began, busy))
    return 0


def _write(
    asked: argparse.Namespace, seeds: list[int], played: list[Played], laid_out: list[Table], run: tuple[float, float]
) -> None:
    took, busy = run
    around = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "processors": os.cpu_count(),
        "load_before": round(busy, 1),
        "python": platform.python_version(),
        "numpy": metadata.version("numpy"),
        "scipy": metadata.version("scipy"),
        "seeds": seeds,
        "seconds": round(took, 1),
    }
    print(
        f"\n{took:.0f} s, load before {busy:.1f}; seeds {' '.join(map(str, seeds))}; "
        f"Python {around['python']}, numpy {around['numpy']}"
    )
    asked.output.mkdir(parents=True, exist_ok=True)
    file = asked.output / ("autoscaling-quick.json" if asked.quick else "autoscaling.json")
    text = json.dumps(
        {
            "circumstances": around,
            "tables": [{"title": t.title, "head": t.head, "rows": t.rows, "notes": t.notes} for t in laid_out],
            "matches": tables.document(played),
        },
        ensure_ascii=False,
    )
    file.write_text(text + "\n")
    print(f"written to {file}", file=sys.stderr)
