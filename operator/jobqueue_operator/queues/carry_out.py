"""The third step of a tick: the plan is carried out, in the queue first and then by the platform.

take back ─► retire ─► limits ─► start and stop workers

Who is taken back is not replaced, and who is to be stopped was fenced in the queue before; so a worker that holds a job
is never stopped by scale-in, and none is started while a retired one will do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jobqueue.errors import JobQueueError, StaleEpoch
from jobqueue_operator import observe
from jobqueue_operator.planner.facts import Phase, WorkerFacts
from jobqueue_operator.queues.gather import LeadershipLost
from jobqueue_operator.queues.queue import HERE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jobqueue.signals import Snapshot
    from jobqueue_operator.planner.facts import Facts
    from jobqueue_operator.planner.plan import Plan
    from jobqueue_operator.platforms import Carrier
    from jobqueue_operator.queues.gather import Sight
    from jobqueue_operator.queues.queue import Queue
    from jobqueue_operator.queues.saying import Says


class Executor:
    """Carries plans out on one database and one platform. It remembers nothing: a plan may be repeated."""

    def __init__(self, queue: Queue, platform: Carrier, reporter: Says) -> None:
        self._queue = queue
        self._platform = platform
        self._reporter = reporter

    async def carry_out(self, plan: Plan, sight: Sight) -> Facts:
        """Do what the plan says, and return the facts with what became of the workers that it fences or takes back.

        Where the queue does not answer half-way, nothing is started or stopped: the next look decides anew.
        Raises LeadershipLost.
        """
        facts = sight.facts
        if sight.snapshot is None:
            # Nothing is known of who is fenced: the platform keeps what it has, and what dies is started again.
            await self._platform.apply(plan)
            return facts
        try:
            phases = await self._take_back(plan, sight.snapshot, facts)
            phases |= await self._retire(plan, sight.snapshot, facts)
            await self._set_limits(plan, facts)
        except StaleEpoch as error:
            raise LeadershipLost(str(error)) from error
        except JobQueueError as error:
            self._reporter.say("warning", f"the plan is carried out later: {error}")
            return facts
        facts = replace(facts, workers=tuple(phases.get(w.name, w) for w in facts.workers))
        await self._platform.apply(plan, facts.workers)
        return facts

    async def _take_back(self, plan: Plan, snapshot: Snapshot, facts: Facts) -> dict[str, WorkerFacts]:
        found = _named((name for pool in plan.pools for name in pool.take_back), facts)
        ids = [id_ for worker in found for id_ in observe.registrations(snapshot, worker, state="retired")]
        if ids:
            await self._queue.take_back(ids)
        return {w.name: replace(w, phase=Phase.READY) for w in found if w.phase is Phase.RETIRED}

    async def _retire(self, plan: Plan, snapshot: Snapshot, facts: Facts) -> dict[str, WorkerFacts]:
        found = _named((victim.worker for pool in plan.pools for victim in pool.retire), facts)
        ids = {w.name: observe.registrations(snapshot, w, state="active") for w in found}
        if not any(ids.values()):
            return {}
        held = await self._queue.retire([id_ for each in ids.values() for id_ in each])
        return {w.name: _fenced(w, ids[w.name], held) for w in found if any(id_ in held for id_ in ids[w.name])}

    async def _set_limits(self, plan: Plan, facts: Facts) -> None:
        for allocation in plan.downstreams:
            wanted = allocation.limits.get(HERE)
            seen = next((d for d in facts.downstreams.get(allocation.downstream, ()) if d.database == HERE), None)
            if wanted is not None and seen is not None and seen.limit != wanted:
                await self._queue.limit(allocation.downstream, wanted)


def _named(names: Iterable[str], facts: Facts) -> list[WorkerFacts]:
    wanted = set(names)
    return [worker for worker in facts.workers if worker.name in wanted]


def _fenced(worker: WorkerFacts, ids: Iterable[int], held: Mapping[int, int]) -> WorkerFacts:
    # What the queue says it holds is final: counted after the fence was committed, it can only fall.
    return replace(worker, phase=Phase.RETIRED, busy=sum(held.get(id_, 0) for id_ in ids))
