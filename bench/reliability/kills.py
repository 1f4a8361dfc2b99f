"""kill -9 of supervisors, runners and children, chosen at random, at random moments."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

from bench.reliability.verdict import Verdict, judge, lost

if TYPE_CHECKING:
    from datetime import datetime

    from bench.reliability.stage import Crew, Stage

_HELD = (
    "SELECT l.id, l.token FROM jobqueue.lease l JOIN jobqueue.worker w ON w.id = l.worker_id"
    " WHERE starts_with(w.name, %s || '/')"
)

_BESIDE = (
    "SELECT split_part(worker, '/', 1), started_at FROM jobqueue.attempts"
    " WHERE outcome = 'lost' AND NOT token = ANY(%s)"
)
INSTANT = timedelta(seconds=1)  # a claim that the server still worked on when its worker was stopped


def run(stage: Stage, seed: int, *, jobs: int, faults: int) -> Verdict:
    """Work off `jobs` with three workers while `faults` processes are killed."""
    verdict = Verdict("kills", seed)
    stage.load(jobs)
    stage.staff(3)
    killed: Counter[str] = Counter()
    in_flight: set[tuple[int, int]] = set()
    kills: list[tuple[str, datetime]] = []
    for moment in stage.moments(faults):
        stage.until_finished(moment)
        stage.dither()
        what, pid, worker = stage.until(lambda: _victim(stage), "a process to kill")
        # The worker is stopped first: what it holds can be counted, and nothing is added until the kill.
        frozen = worker.stop_all()
        for _ in range(2):  # a claim may still be on its way inside the server
            in_flight.update(stage.connection.execute(_HELD, (worker.name,)).fetchall())  # type: ignore[arg-type]
            stage.pause()
        kills.append((worker.name, stage.value("SELECT clock_timestamp()")))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed[what] += 1
        worker.continue_all(frozen)
        stage.mend()
    stage.until_finished(within=600)
    for what in ("supervisor", "runner", "child"):
        verdict.happened(f"kills of a {what}", killed[what])
    verdict.happened("kills", killed.total(), faults * 0.9)
    verdict.happened("workers started again", stage.restarted)
    judge(stage, verdict)
    verdict.happened("leases held at the kills", len(in_flight))
    verdict.at_most("redelivered", lost(stage), len(in_flight))
    tokens = [token for _, token in in_flight]
    beside = stage.connection.execute(_BESIDE, (tokens,)).fetchall()
    verdict.tell("of them claimed in the instant of the kill", len(beside))
    unexplained = [
        each
        for each in beside
        if not any(each[0] == name and abs(each[1] - at) < INSTANT for name, at in kills)  # type: ignore[operator]
    ]
    verdict.zero("lost attempts that no kill explains", len(unexplained))
    return verdict


def _victim(stage: Stage) -> tuple[str, int, Crew] | None:
    """Choose a process that lives: what it is, its id, its worker. None: look again."""
    stage.mend()
    worker = stage.random.choice(stage.workers)
    what = stage.random.choice(["supervisor", "runner", "child"])
    runners = [each["pid"] for each in worker.events("runner started")]
    tree = worker.tree()
    found = {
        "supervisor": tree[:1] if runners else [],
        "runner": [pid for pid in tree if pid in runners],
        "child": [pid for pid in tree[1:] if pid not in runners],
    }[what]
    return (what, stage.random.choice(found), worker) if found else None
