"""pg_terminate_backend of one of the workers' backends, chosen at random, at random moments."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from bench.reliability.verdict import Verdict, judge

if TYPE_CHECKING:
    from bench.reliability.stage import Stage

_BACKENDS = (
    "SELECT pid, application_name, state <> 'idle' FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name LIKE 'jobqueue%' ORDER BY pid"
)


def run(stage: Stage, seed: int, *, jobs: int, faults: int) -> Verdict:
    """Work off `jobs` with two workers while `faults` of their connections are ended by the server."""
    verdict = Verdict("terminations", seed)
    stage.load(jobs)
    stage.staff(2)
    ended: Counter[str] = Counter()
    busy = 0
    for moment in stage.moments(faults):
        stage.until_finished(moment)
        stage.dither()
        backends = stage.until(lambda: stage.connection.execute(_BACKENDS).fetchall(), "a backend")
        wanted = stage.random.choice(sorted({str(each[1]) for each in backends}))  # claims as often as handlers
        alike = [each for each in backends if each[1] == wanted]
        working = [each for each in alike if each[2]]
        pid, name, _ = stage.random.choice(working or alike)
        if stage.value("SELECT pg_terminate_backend(%s)", pid):
            ended[str(name)] += 1
            busy += bool(working)
    stage.until_finished()
    verdict.happened("terminations", ended.total(), faults * 0.9)
    for name, number in sorted(ended.items()):
        verdict.tell(f"of `{name}`", number)
    verdict.happened("in the middle of a statement or transaction", busy)
    verdict.zero("workers that died", stage.restarted)
    judge(stage, verdict)
    return verdict
