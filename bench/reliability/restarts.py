"""PostgreSQL restarted at once (`immediate`: crash recovery) in mid-claim and mid-acknowledgement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.reliability.verdict import Verdict, judge

if TYPE_CHECKING:
    from bench.reliability.stage import Stage

CLAIM_WITHIN = 5.0  # seconds from the server's start to the next claim

_AGAIN = (
    "SELECT extract(epoch FROM min(started_at) - pg_postmaster_start_time())::float8 FROM jobqueue.attempts"
    " WHERE started_at > pg_postmaster_start_time()"
)
_BUSY = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'jobqueue%%' AND state <> 'idle' AND query ~ %s"
)


def run(stage: Stage, seed: int, *, jobs: int, faults: int) -> Verdict:
    """Work off `jobs` with two workers while the server restarts `faults` times."""
    verdict = Verdict("restarts", seed)
    stage.load(jobs, seconds=(0.0, 0.05))
    stage.staff(2)
    caught = {"claim": 0, "complete|fail|effect": 0}
    pauses = []
    for at, moment in enumerate(stage.moments(faults)):
        stage.until_finished(moment)
        query = list(caught)[at % 2]
        if stage.until(lambda q=query: stage.value(_BUSY, q) or stage.finished() >= stage.jobs, query):  # type: ignore[misc]
            caught[query] += 1
        stage.server.restart("immediate")
        pauses.append(float(stage.until(lambda: stage.value(_AGAIN), "the next claim", within=60)))
    stage.until_finished()
    pauses.sort()
    verdict.happened("restarts", len(pauses), faults)
    verdict.happened("in mid-claim", caught["claim"])
    verdict.happened("in mid-acknowledgement or mid-effect", caught["complete|fail|effect"])
    verdict.tell("seconds to the next claim, median", round(pauses[len(pauses) // 2], 2))
    verdict.at_most("seconds to the next claim, longest", round(pauses[-1], 2), CLAIM_WITHIN)
    verdict.zero("workers that died", stage.restarted)
    judge(stage, verdict)
    return verdict
