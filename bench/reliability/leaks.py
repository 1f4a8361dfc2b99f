"""Many no-op jobs through one worker: what it holds before and after."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bench.reliability.verdict import Verdict, judge

if TYPE_CHECKING:
    from bench.reliability.stage import Stage

GROWTH_MIB = 8.0  # what allocators may keep of a warm process
_CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'jobqueue%%'"


def run(stage: Stage, seed: int, *, jobs: int, faults: int) -> Verdict:
    """Warm up with a tenth of the jobs, work off the rest, compare."""
    del faults
    verdict = Verdict("leaks", seed)
    stage.staff(1, concurrency=16, prefetch=1000)
    noop = {"noop": 1.0}
    stage.load(jobs // 10, mix=noop)
    stage.until_finished()
    before = _holdings(stage)
    stage.load(jobs, mix=noop)
    stage.until_finished()
    after = _holdings(stage)
    for name, value in before.items():
        verdict.tell(f"{name} before", value)
        verdict.at_most(f"{name} after", after[name], value + (GROWTH_MIB if name == "MiB resident" else 1))
    verdict.zero("workers that died", stage.restarted)
    judge(stage, verdict, with_effects=False)
    return verdict


def _holdings(stage: Stage) -> dict[str, float]:
    """Count what the worker's processes hold, once it is idle."""
    stage.until(lambda: not stage.value("SELECT count(*) FROM jobqueue.lease"), "idleness")
    tree = [Path(f"/proc/{pid}") for pid in stage.workers[0].tree()]
    resident = 0.0
    for process in tree:
        lines = (process / "status").read_text().splitlines()
        resident += next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
    return {
        "processes": len(tree),
        "threads": sum(len(list((process / "task").iterdir())) for process in tree),
        "file descriptors": sum(len(list((process / "fd").iterdir())) for process in tree),
        "connections": float(stage.value(_CONNECTIONS)),
        "MiB resident": round(resident, 1),
    }
