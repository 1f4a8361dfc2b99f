"""SIGSTOP of whole workers past their leases, then SIGCONT: they wake up with jobs that are no longer theirs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from bench.reliability.verdict import Verdict, judge, lost
from jobqueue import queue
from jobqueue.errors import StaleLease

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.reliability.stage import Stage

TOGETHER = 3  # workers frozen at a time; one more goes on

_HELD = (
    "SELECT l.id, l.token FROM jobqueue.lease l JOIN jobqueue.worker w ON w.id = l.worker_id"
    " WHERE split_part(w.name, '/', 1) = ANY(%s)"
)
_VALID = "SELECT count(*) FROM jobqueue.lease WHERE token = ANY(%s) AND leased_until > clock_timestamp()"
_UNSWEPT = "SELECT count(*) FROM jobqueue.lease WHERE token = ANY(%s)"
_FINISHED = "SELECT token FROM jobqueue.attempts WHERE token = ANY(%s) AND outcome NOT IN ('lost', 'running')"


def run(stage: Stage, seed: int, *, jobs: int, faults: int) -> Verdict:
    """Freeze `faults` workers, a few at a time, while more than `jobs` jobs are worked off."""
    verdict = Verdict("freezes", seed)
    mix = {"async": 0.4, "deferred": 0.3, "thread": 0.3}
    stage.load(jobs, mix=mix, seconds=(0.1, 0.8))
    stage.staff(TOGETHER + 1, prefetch=0)
    frozen_workers = stale = tried = held_by = 0
    refused: Counter[str] = Counter()
    noticed: Counter[str] = Counter()
    while frozen_workers < faults:
        if stage.finished() > stage.jobs - 200:
            stage.load(400, mix=mix, seconds=(0.1, 0.8))
        victims = stage.random.sample(stage.workers, min(TOGETHER, faults - frozen_workers))
        stage.dither(0.3)
        frozen = [worker.stop_all() for worker in victims]
        frozen_workers += len(victims)
        names = [worker.name for worker in victims]
        held: dict[int, int] = {}
        for _ in range(2):  # a claim may still be on its way inside the server
            held |= {token: job for job, token in stage.connection.execute(_HELD, (names,)).fetchall()}  # type: ignore[misc]
            stage.pause()
        held_by += len({*held})
        tokens = list(held)
        stage.until(lambda t=tokens: not stage.value(_VALID, t), "the leases to end", within=30)  # type: ignore[misc]
        ended = {token for (token,) in stage.connection.execute(_FINISHED, (tokens,)).fetchall()}
        for token in set(held) - ended:
            tried += 1
            refused.update(_stale_writes(stage, held[token], token))
        if frozen_workers // TOGETHER % 2:  # every second time they wake before the sweep may have come to all
            stage.until(lambda t=tokens: not stage.value(_UNSWEPT, t), "the sweep", within=30)  # type: ignore[misc]
        for worker, pids in zip(victims, frozen, strict=True):
            worker.continue_all(pids)
        finished = stage.finished()
        stage.until_finished(min(finished + 10, stage.jobs))
        stale += len(set(held) - ended)
    for worker in stage.workers:
        for name in ("jobqueue_stale_acks_rejected_total", "jobqueue_leases_lost_total"):
            noticed[name] += int(worker.metric(name))
    stage.until_finished()
    verdict.happened("freezes", frozen_workers, faults)
    verdict.happened("leases that ended frozen", stale)
    for name in ("complete", "fail", "extend", "effect"):
        verdict.zero(f"stale {name} accepted", tried - refused[name])
    verdict.tell("stale writes tried and refused", refused.total())
    verdict.happened("refusals and lost leases that woken workers counted", noticed.total())
    verdict.zero("workers that died", stage.restarted)
    verdict.at_most("redelivered", lost(stage), held_by)
    judge(stage, verdict)
    return verdict


def _stale_writes(stage: Stage, job: int, token: int) -> list[str]:
    """Write in the frozen worker's name with its token; returns the verbs that were refused."""
    connection = stage.connection
    calls: dict[str, Callable[[], Any]] = {
        "complete": lambda: queue.complete(connection, job, token),
        "fail": lambda: queue.fail(connection, job, token, "stale"),
        "effect": lambda: queue.effect(connection, job, token, f"stale-{token}"),
    }
    refused = []
    for verb, call in calls.items():
        try:
            call()
        except StaleLease:
            refused.append(verb)
    owner = stage.value("SELECT worker_id FROM jobqueue.attempt WHERE token = %s", token) or stage.value(
        "SELECT worker_id FROM jobqueue.lease WHERE token = %s", token
    )
    extended = queue.extend(connection, owner, [job], [token])
    if all(each.result == "stale" for each in extended):
        refused.append("extend")
    return refused
