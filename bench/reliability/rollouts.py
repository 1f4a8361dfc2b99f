"""Rolling restarts under load: one worker in, one out by SIGTERM, again and again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench.reliability.verdict import Verdict, judge, lost

if TYPE_CHECKING:
    from bench.reliability.stage import Stage

DRAIN, GRACE = 5.0, 15.0  # seconds; grace = drain + flush (5) + margin (5)
ENOUGH = 300  # jobs left, so that both workers have some in hand

_HELD = (
    "SELECT count(*) FROM jobqueue.lease l JOIN jobqueue.worker w ON w.id = l.worker_id"
    " WHERE starts_with(w.name, %s || '/')"
)


def run(stage: Stage, seed: int, *, jobs: int, faults: int) -> Verdict:
    """Work off `jobs`, each shorter than the drain, while `faults` workers are replaced."""
    verdict = Verdict("rollouts", seed)
    mix = {"async": 0.5, "deferred": 0.2, "thread": 0.2, "process": 0.1}
    stage.load(jobs, mix=mix, seconds=(0.0, 0.2))
    stage.staff(2, drain_timeout=DRAIN)
    exits, statuses, under_load = [], [], 0
    for at in range(faults):
        if stage.jobs - stage.finished() < ENOUGH:  # the load must outlast the rollouts
            stage.load(ENOUGH, mix=mix, seconds=(0.0, 0.2))
        new, old = stage.start(), stage.workers[at % 2]
        new.until_ready(within=60)
        if stage.jobs - stage.finished() < ENOUGH:
            stage.load(ENOUGH, mix=mix, seconds=(0.0, 0.2))
        stage.dither()
        under_load += bool(stage.until(lambda name=old.name: stage.value(_HELD, name), "jobs in hand"))  # type: ignore[misc]
        began = time.monotonic()
        old.terminate()
        statuses.append(old.process.wait(within=60))
        exits.append(time.monotonic() - began)
        stage.workers[at % 2] = new
    stage.until_finished()
    verdict.happened("workers replaced", len(exits), faults)
    verdict.happened("of them with jobs in hand", under_load)
    verdict.at_most("longest exit, seconds", round(max(exits), 2), GRACE)
    verdict.zero("exit statuses that are not 0", sum(status != 0 for status in statuses))
    verdict.zero("redelivered", lost(stage))
    verdict.zero(
        "jobs with more than one attempt", stage.value("SELECT count(*) FROM jobqueue.jobs WHERE attempts <> 1")
    )
    judge(stage, verdict)
    return verdict
