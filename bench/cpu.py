"""Processor time of process trees: what a job costs stays the same when the machine is busy with something else."""

from __future__ import annotations

import os
import time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def settled(root: int) -> float:
    """Return `seconds` once the processes that are about to end have ended."""
    last = seconds(root)
    for _ in range(20):
        time.sleep(0.1)
        before, last = last, seconds(root)
        if last - before < 2 / TICK:
            break
    return last


def seconds(root: int) -> float:
    """Return the processor time of a process and all its descendants, the ended ones included."""
    total, parents = 0.0, {root}
    facts: dict[int, tuple[int, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            # utime, stime, and those of the children already waited for
            facts[int(entry.name)] = (int(fields[1]), sum(map(int, fields[11:15])) / TICK)
    grew = True
    while grew:
        found = {pid for pid, (parent, _) in facts.items() if parent in parents and pid not in parents}
        parents |= found
        grew = bool(found)
    for pid in parents:
        total += facts.get(pid, (0, 0.0))[1]
    return total
