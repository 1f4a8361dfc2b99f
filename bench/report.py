"""What a run found: a table for people, JSON for machines, both with the circumstances."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.rounds import Contest
    from bench.server import Server

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"


@dataclass
class Table:
    """Rows of text under a title."""

    title: str
    head: list[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        """Lay it out, readable as it is and as Markdown."""
        widths = [max(len(r[i]) for r in [self.head, *self.rows]) for i in range(len(self.head))]

        def line(cells: list[str]) -> str:
            first = cells[0].ljust(widths[0])
            rest = [c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True)]
            return "| " + " | ".join([first, *rest]) + " |"

        rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (w + 1) + ":" for w in widths[1:])]) + "|"
        lines = [f"**{self.title}**", "", line(self.head), rule, *(line(r) for r in self.rows)]
        return "\n".join(lines + [""] + [f"{n}" for n in self.notes])


def contest_table(contest: Contest, against: list[str]) -> Table:
    """One row a contestant: median, spread, and its ratio to each of `against` (in the same round, with spread)."""
    against = [a for a in against if any(s.name == a for s in contest.series)]
    table = Table(contest.title, ["", f"median {contest.unit}", "lowest to highest", *(f"to {a}" for a in against)])
    for series in contest.series:
        ratios = []
        for other in against:
            middle, low, high = contest.ratio(series.name, other)
            ratios.append("1" if other == series.name else f"{middle:.2f} ({low:.2f}..{high:.2f})")
        digits = 0 if series.median >= 100 else 2
        table.rows.append(
            [
                series.name,
                f"{series.median:,.{digits}f}",
                f"{min(series.values):,.{digits}f} to {max(series.values):,.{digits}f}",
                *ratios,
            ]
        )
    table.notes = [f"{key}: {value}" for key, value in contest.facts.items()]
    return table


def circumstances(server: Server) -> dict[str, Any]:
    """Return machine, versions and settings: without them no figure means anything."""
    node = shutil.which("node")
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} x {cpu}, {memory} GiB, {platform.system()} {platform.release()}",
        "load_at_start": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "psycopg": metadata.version("psycopg"),
        "node": subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout.strip()
        if node
        else None,
        "commit": commit,
        "postgresql": server.facts(),
    }


def said(around: dict[str, Any]) -> str:
    """Return the circumstances in a line."""
    pg = around["postgresql"]
    settings = ", ".join(f"{name} {pg[name]}" for name in ("fsync", "synchronous_commit", "full_page_writes"))
    return (
        f"{around['machine']}; load {around['load_at_start']} at the start; PostgreSQL {pg['server_version']}, "
        f"{settings}, shared_buffers {pg['shared_buffers']}; Python {around['python']}, psycopg {around['psycopg']}, "
        f"node {around['node']}; commit {around['commit']}, {around['at']}"
    )


def write(name: str, tables: list[Table], contests: list[Contest], around: dict[str, Any]) -> Path:
    """Print the tables and write them with every single figure to `results/<name>-<time>.json`."""
    for table in tables:
        print()
        print(table.markdown())
    print()
    print(said(around))
    RESULTS.mkdir(parents=True, exist_ok=True)
    stamp = around["at"].replace(":", "").replace("-", "")[:15]
    file = RESULTS / f"{name}-{stamp}.json"
    document = {
        "circumstances": around,
        "tables": [{"title": t.title, "head": t.head, "rows": t.rows, "notes": t.notes} for t in tables],
        "contests": [
            {
                "title": c.title,
                "unit": c.unit,
                "facts": dict(c.facts),
                "series": [{"name": s.name, "values": s.values, "median": s.median} for s in c.series],
            }
            for c in contests
        ],
    }
    file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    print(f"written to {file.relative_to(ROOT)}", file=sys.stderr)
    return file


def joined(tables: list[Table]) -> list[Table]:
    """Say notes that all the tables share once, under the last."""
    for table in tables[:-1]:
        if table.notes == tables[-1].notes:
            table.notes = []
    return tables
