"""What users are told: status when it changes, events on transitions, a line in the log for each decision."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jobqueue_operator.cluster import events
from jobqueue_operator.planner import status
from jobqueue_operator.planner.status import ClassState, Condition, QueueState
from jobqueue_operator.planner.workload.names import account_name
from jobqueue_operator.platforms.kubernetes.api import DOWNSTREAM_CAPACITIES, JOB_QUEUES, ApiError, Unreachable
from jobqueue_operator.registration import own_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobqueue_operator.cluster.events import Events
    from jobqueue_operator.cluster.store import Key, Known, Store
    from jobqueue_operator.cluster.work import Work
    from jobqueue_operator.planner.plan import Plan
    from jobqueue_operator.platforms.kubernetes.api import Api, Kind

log = logging.getLogger(__name__)

NUMBERS_EVERY = 15.0
"""Seconds between two writes of a status in which only numbers moved."""


@dataclass(slots=True)
class Teller:
    """Remembers what it said."""

    api: Api
    events: Events
    queues: Store
    decisions: dict[str, int] = field(default_factory=dict)
    """How many decisions were made, by reason."""
    _written_at: dict[tuple[str, Key], float] = field(default_factory=dict)
    _replicas: dict[tuple[Key, str], int] = field(default_factory=dict)
    _lost: set[str] = field(default_factory=set)
    _refused: bool = False

    async def tell(self, work: Work, *, now: str) -> None:
        """Write one JobQueue's status and events, where they are news. `now`: RFC 3339."""
        known = self.queues.known.get(work.key)
        if known is None or known.uid != work.known.uid:
            return  # deleted in the meantime
        await self._tell_decisions(work)
        await self._tell_pods(work)
        after = status.queue_status(_state(work), known.status, now=now)
        answer = await self._write(JOB_QUEUES, "JobQueue", known, after)
        if answer is not None and work.key in self.queues.known:  # deleted while it was written
            self.queues.put(answer)

    async def tell_capacities(self, capacities: Store, plan: Plan, *, now: str) -> None:
        """Write the status of every DownstreamCapacity, where it is news."""
        for known in list(capacities.known.values()):
            problem, allocation = None, None
            if known.downstream is None:
                problem = Condition("Ready", "False", "InvalidSpec", "; ".join(known.problems))
            else:
                allocation = plan.downstream(own_name(known.downstream))
                if allocation is not None and not allocation.shares:
                    allocation = None
            after = status.capacity_status(allocation, problem, known.status, generation=known.generation, now=now)
            answer = await self._write(DOWNSTREAM_CAPACITIES, "DownstreamCapacity", known, after)
            if answer is not None:
                capacities.put(answer)

    async def tell_gone(self, gone: Known, last: Work | None) -> None:
        """Say of a JobQueue that was deleted what it leaves behind."""
        log.info("JobQueue %s/%s was deleted", *gone.key)
        snapshot = last.link.snapshot if last is not None and last.link is not None else None
        if snapshot is None or last is None or last.queue is None:
            return
        seen = [found for spec in last.queue.spec.classes if (found := snapshot.find(spec.name)) is not None]
        left = {c.class_: c.unfinished for c in seen}
        said = ", ".join(f"{count} of class {name}" for name, count in left.items() if count)
        if said:
            note = f"deleted with jobs left: {said}; they stay in the database until a worker of their class comes"
            log.warning("JobQueue %s/%s %s", *gone.key, note)
            await self.events.tell(gone, "JobQueue", "Warning", "JobsLeft", "Delete", note)

    async def _tell_decisions(self, work: Work) -> None:
        for pool in work.plan.pools if work.plan is not None else ():
            decision = pool.decision
            self.decisions[decision.reason] = self.decisions.get(decision.reason, 0) + 1
            key = work.key, pool.class_
            before = self._replicas.get(key)
            self._replicas[key] = decision.replicas
            if before is None or before == decision.replicas:
                continue
            note = f"class {pool.class_}: {before} → {decision.replicas} workers ({decision.reason}): {pool.why}"
            log.info("%s/%s %s", *work.key, note)
            await self.events.tell(work.known, "JobQueue", "Normal", "Scaled", "Scale", note)

    async def _tell_pods(self, work: Work) -> None:
        put_back = [
            f"class {class_}: somebody changed its objects; they are put back. Pause the class to change them"
            for class_ in (work.platform.put_back if work.platform is not None else ())
        ]
        if work.account_put_back:
            name = account_name(work.key[1])
            put_back.append(f"somebody changed ServiceAccount {name}; it is put back. Pause all classes to change it")
        for note in put_back:
            log.warning("%s/%s %s", *work.key, note)
            await self.events.tell(work.known, "JobQueue", "Warning", "PutBack", "Apply", note)
        for pod in work.lost:
            if pod.uid not in self._lost:
                self._lost.add(pod.uid)
                note = f"pod {pod.name} did not end and its node does not answer: its units are given to others"
                log.warning("%s/%s %s", *work.key, note)
                await self.events.tell(work.known, "JobQueue", "Warning", "PodLost", "Observe", note)

    async def _write(self, kind: Kind, name: str, known: Known, after: Mapping[str, Any]) -> dict[str, Any] | None:
        """Write a status if it is news; return the object then."""
        key, now = (kind.plural, known.key), time.monotonic()
        if after == known.status:
            return None
        calm = status.same(known.status, after)
        if calm and now - self._written_at.get(key, float("-inf")) < NUMBERS_EVERY:
            return None
        self._written_at[key] = now
        manifest = {
            "apiVersion": kind.api_version,
            "kind": name,
            "metadata": {"namespace": known.key[0], "name": known.key[1]},
            "status": after,
        }
        try:
            answer = await self.api.apply_status(kind, manifest)
        except ApiError as error:
            if not self._refused and not isinstance(error, Unreachable):
                log.warning("the status of %s %s/%s was not written: %s", name, *known.key, error)
                self._refused = True
            return None
        self._refused = False
        for type_, reason, note in events.transitions(known.status, after):
            level = logging.WARNING if type_ == "Warning" else logging.INFO
            log.log(level, "%s %s/%s: %s: %s", name, *known.key, reason, note)
            await self.events.tell(known, name, type_, reason, "Observe", note)
        return answer


def _state(work: Work) -> QueueState:
    """Bring together what a status is made from."""
    facts, plan = work.facts, work.plan
    refused = work.platform.errors if work.platform is not None else {}
    classes = [
        ClassState(
            name=spec.name,
            pool=plan.pool(spec.name) if plan is not None else None,
            facts=facts.classes.get(spec.name) if facts is not None else None,
            workers=[w for w in facts.workers if w.class_ == spec.name] if facts is not None else [],
            refused=refused.get(spec.name, ""),
        )
        for spec in (work.queue.spec.classes if work.queue is not None else ())
    ]
    return QueueState(
        generation=work.known.generation,
        accepted=_accepted(work),
        database=_database(work),
        classes=classes,
        others=work.conditions,
    )


def _accepted(work: Work) -> Condition:
    if not work.troubles:
        return Condition("SpecAccepted", "True", "Accepted", "")
    said = "; ".join(trouble.message for trouble in work.troubles)
    stays = "what runs stays as it is" if work.queue is None else "what was accepted last stays in force"
    return Condition("SpecAccepted", "False", work.troubles[0].reason, f"{said} ({stays})")


def _database(work: Work) -> Condition:
    if work.queue is None:
        return Condition("DatabaseReady", "Unknown", "NotLookedAt", "the manifest is not carried out")
    failure = work.refusal or (work.link.failure if work.link is not None else None)
    if failure is not None:
        return Condition("DatabaseReady", "False", failure.reason, failure.message)
    if work.error:
        return Condition("DatabaseReady", "Unknown", "RoundFailed", work.error)
    if work.link is None or work.link.snapshot is None:
        return Condition("DatabaseReady", "Unknown", "NotLookedAt", "it was not looked at yet")
    return Condition("DatabaseReady", "True", "Reachable", str(work.link.place))
