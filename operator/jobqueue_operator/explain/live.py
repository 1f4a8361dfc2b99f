"""What the planner would decide now for a live queue, asked anew."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jobqueue_operator import observe
from jobqueue_operator.planner.decide import plan
from jobqueue_operator.planner.facts import Phase, WorkerFacts
from jobqueue_operator.planner.priors import restore
from jobqueue_operator.planner.record import Tick
from jobqueue_operator.up.wanted import wanted

if TYPE_CHECKING:
    from jobqueue.signals import Snapshot
    from jobqueue_operator.workload import Workload

REVISION = "live"
"""Of every worker: what they were made from is not known here, so no rollout is planned."""


def tick(snapshot: Snapshot, workload: Workload, interval: float) -> Tick:
    """Plan once for what a snapshot shows, with what an operator stored there and as if it looked every `interval`.

    Workers are the registered ones.
    """
    asked = wanted(workload, {spec.name: REVISION for spec in workload.classes})
    known = {pool.key for pool in asked.pools}
    registered = [
        WorkerFacts(
            name=entry.name,
            class_=entry.class_,
            phase=Phase.STARTING,
            revision=REVISION,
            age=(snapshot.now - entry.registered_at).total_seconds(),
        )
        for entry in snapshot.workers
        if entry.class_ in known
    ]
    seen = observe.facts(snapshot, registered)
    # Counted from the registration, which comes late in a start: better none than that.
    facts = replace(seen, workers=tuple(replace(worker, started_in=None) for worker in seen.workers))
    now = snapshot.now.timestamp()
    kept = restore({seen.class_: seen.memory for seen in snapshot.classes})
    made = plan(asked, facts, kept, now=now, tick=interval)
    return Tick(now=now, tick=interval, wanted=asked, facts=facts, plan=made, previous=kept)
