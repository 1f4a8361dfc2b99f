"""Admit → connect → look → plan → reconcile → tell, once a tick, or when a queue that sleeps is woken."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from jobqueue.errors import JobQueueError
from jobqueue.signals.collector import Observation
from jobqueue_operator import asked
from jobqueue_operator.cluster import views
from jobqueue_operator.cluster.admission import Admission
from jobqueue_operator.cluster.references import Trouble
from jobqueue_operator.cluster.work import Work
from jobqueue_operator.planner.decide import plan
from jobqueue_operator.planner.plan import Plan, Reason
from jobqueue_operator.planner.wanted import Wanted
from jobqueue_operator.platforms.kubernetes import pods
from jobqueue_operator.platforms.kubernetes.api import ApiError
from jobqueue_operator.registration import class_settings, downstream_name, own_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from jobqueue_operator.cluster.connecting import Connecting
    from jobqueue_operator.cluster.links import Link, Place
    from jobqueue_operator.cluster.reconciling import Reconciler
    from jobqueue_operator.cluster.settings import OperatorSettings
    from jobqueue_operator.cluster.store import Key, Store
    from jobqueue_operator.cluster.telling import Teller
    from jobqueue_operator.planner.facts import Facts
    from jobqueue_operator.resources import DownstreamCapacity

log = logging.getLogger(__name__)

AT_ONCE = 32
"""Databases and JobQueues that are worked on at the same time."""

_T = TypeVar("_T")

Owners: TypeAlias = "dict[tuple[Place, str], Key]"
"""Whose each class of a database is."""


@dataclass(slots=True)
class Rounds:
    """Everything one operator remembers between two rounds."""

    settings: OperatorSettings
    queues: Store
    capacities: Store
    connecting: Connecting
    reconciler: Reconciler
    teller: Teller
    moved_at: float = field(default_factory=time.monotonic)
    """Monotonic seconds of the last step that a round got through, a JobQueue's or its end: liveness.

    A first round over a thousand JobQueues takes minutes, and whoever ended it would only have it begin anew.
    """
    rounds: int = 0
    errors: int = 0
    """Errors that stopped one JobQueue's part of a round."""
    _admission: Admission = field(default_factory=Admission)
    _plan: Plan = field(default_factory=lambda: Plan(()))
    _last: dict[Key, Work] = field(default_factory=dict)
    _owners: Owners = field(default_factory=dict)

    async def round(self) -> None:
        """Do everything once. Raises nothing for what one JobQueue, one database or the API server does."""
        now = time.time()
        downstreams = {k.key: d for k in self.capacities.known.values() if (d := k.downstream) is not None}
        works = [Work.of(admitted) for admitted in self._admission.admit(self.queues.known.values(), downstreams)]
        await self._each(works, self._prepare)
        self._owners = _one_owner_a_class(works, self._owners)
        await self._look({id(link): link for work in works if (link := work.link) is not None}.values())
        await self._each(works, lambda work: self._settle(work, downstreams))
        # By the time after the look at the databases: else one that registered in between seems older than its pod.
        self._read_pods(works, time.time())
        self.reconciler.begin()
        wanted, facts = _wanted(works, downstreams, self.reconciler), await self._facts(works)
        found = plan(wanted, facts, self._with_restored(works), now=now, tick=self.settings.tick)
        # A class that is asked for no more is the reconciler's alone, which has it work off its jobs first.
        self._plan = Plan(tuple(p for p in found.pools if p.decision.reason is not Reason.REMOVED), found.downstreams)
        for work in works:
            if work.link is not None and work.link.snapshot is not None:
                work.link.restored = None
        parts = views.by_queue(self._plan)
        await self._each(works, lambda work: self.reconciler.reconcile(work, parts.get(work.key, Plan(()))))
        await self._after(works, wanted)
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        await self._each(works, lambda work: self.teller.tell(work, now=stamp))
        await self.teller.tell_capacities(self.capacities, self._plan, now=stamp)
        for gone in self.queues.take_gone():
            await self.teller.tell_gone(gone, self._last.get(gone.key))
        self._last = {work.key: work for work in works}
        await self.connecting.close_unused(works)
        self.moved_at = time.monotonic()
        self.rounds += 1

    @property
    def plan(self) -> Plan:
        """The last round's."""
        return self._plan

    def observations(self) -> list[Observation]:
        """Return what was seen of each JobQueue's classes last, for metrics."""
        return [
            Observation(
                namespace=work.key[0],
                queue=work.key[1],
                snapshot=work.link.snapshot,
                classes=frozenset(spec.name for spec in work.queue.spec.classes),
                succeeded_at=work.link.seen_at,
            )
            for work in self._last.values()
            if work.link is not None and work.queue is not None
        ]

    def next_look(self) -> float:
        """Return the seconds until the next round is due."""
        sooner = min((link.waker.look_within for link in self.connecting.links.values()), default=self.settings.tick)
        return min(self.settings.tick, max(sooner, 0.2))

    async def close(self) -> None:
        """Close every connection."""
        await self.connecting.close_unused([])

    async def _look(self, links: Iterable[Link]) -> None:
        now = time.monotonic()
        due = [link for link in links if link.due(now, self.settings.tick)]
        await _bounded([link.look(tick=self.settings.tick) for link in due])

    async def _prepare(self, work: Work) -> None:
        try:
            for spec in work.queue.spec.classes if work.queue is not None else ():
                self.reconciler.revision(work, spec)
            await self.connecting.connect(work)
        except Exception:
            work.queue = None  # what cannot even be prepared is left as it is
            raise

    async def _each(self, works: Iterable[Work], do: Callable[[Work], Awaitable[None]]) -> None:
        """Do something for each JobQueue; an error in one is that one's alone."""

        async def guarded(work: Work) -> None:
            try:
                await do(work)
            except (JobQueueError, ApiError) as error:
                work.error = str(error)
            except Exception as error:
                work.error = f"{type(error).__name__}: {error}"
                self.errors += 1
                log.exception("JobQueue %s/%s: a round failed", *work.key)
            finally:
                self.moved_at = time.monotonic()

        await _bounded([guarded(work) for work in works])

    async def _settle(self, work: Work, downstreams: dict[Key, DownstreamCapacity]) -> None:
        if work.queue is None or work.link is None or work.link.snapshot is None:
            return
        used = {downstream_name(work.queue, s.capacity.ref) for s in work.queue.spec.classes if s.capacity is not None}
        limits = {name: 0 for d in downstreams.values() if (name := own_name(d)) in used}
        await work.link.settle(limits, {s.name: class_settings(work.queue, s) for s in work.queue.spec.classes})
        if any(work.link.snapshot.find(s.name) is None for s in work.queue.spec.classes):
            await work.link.look(tick=self.settings.tick)

    def _read_pods(self, works: Iterable[Work], now: float) -> None:
        by_queue = self.reconciler.pods_by_queue()
        for work in works:
            by_class = by_queue.get(work.key, {}) if work.queue is not None else {}
            asked = [spec.name for spec in work.queue.spec.classes] if work.queue is not None else []
            for class_ in dict.fromkeys((*asked, *by_class)):
                found = pods.read(by_class.get(class_, ()), now)
                work.lost += [p for p in found if pods.lost(p, now, self.settings.lost_pod_timeout)]
                work.pods[class_] = [p for p in found if p not in work.lost]
            work.now = now

    async def _facts(self, works: Iterable[Work]) -> Facts:
        async def look(work: Work) -> None:
            if work.queue is not None:
                work.sight = await self.reconciler.look(work)

        parts, classes = {}, {}
        await self._each(works, look)
        for work in works:
            # Of one that could not be looked at nothing is known, so it is left as it is.
            if work.queue is not None and work.sight is not None:
                parts[work.key] = work.database_name, work.sight.facts
                classes[work.key] = list(work.pods)
        return views.together(parts, classes)

    def _with_restored(self, works: Iterable[Work]) -> Plan:
        """Return the last plan, with what was stored for classes that it did not see yet."""
        restored = {
            views.pool_key(work.key, pool.class_): pool
            for work in works
            if work.link is not None and work.link.restored is not None
            for pool in work.link.restored.pools
        }
        kept = [pool for pool in self._plan.pools if pool.class_ not in restored]
        renamed = [views.renamed(pool, key) for key, pool in restored.items()]
        return Plan((*kept, *renamed), self._plan.downstreams)

    async def _after(self, works: Iterable[Work], wanted: Wanted) -> None:
        by_link: dict[int, list[Work]] = {}
        links: dict[int, Link] = {}
        for work in works:
            if work.link is not None and work.queue is not None:
                links[id(work.link)] = work.link
                by_link.setdefault(id(work.link), []).append(work)
        local = {id(link): views.local(wanted, self._plan, [w.key for w in by_link[i]]) for i, link in links.items()}

        async def follow(link: Link) -> None:
            with contextlib.suppress(JobQueueError):
                await link.after(*local[id(link)])

        await _bounded([follow(link) for link in links.values()])


async def _bounded(calls: Iterable[Awaitable[_T]]) -> list[_T]:
    """Await all, a bounded number at the same time."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(call: Awaitable[_T]) -> _T:
        async with gate:
            return await call

    return await asyncio.gather(*(one(call) for call in calls))


def _one_owner_a_class(works: Sequence[Work], before: Owners) -> Owners:
    """Leave each class of a database to the JobQueue that had it, else to the oldest that names it.

    The others are not touched. Return who has what.
    """
    named = {
        (work.link.place, spec.name, work.key)
        for work in works
        if work.queue is not None and work.link is not None
        for spec in work.queue.spec.classes
    }
    owners = {(place, class_): key for (place, class_), key in before.items() if (place, class_, key) in named}
    for work in works:
        if work.queue is None or work.link is None:
            continue
        for index, spec in enumerate(work.queue.spec.classes):
            owner = owners.setdefault((work.link.place, spec.name), work.key)
            if owner != work.key:
                work.troubles.append(
                    Trouble(
                        "ClassTaken",
                        f"spec.classes[{index}].name: class {spec.name} of this database is JobQueue "
                        f"{'/'.join(owner)}'s; rename it, or use another database or database.schema",
                    )
                )
        if any(trouble.reason == "ClassTaken" for trouble in work.troubles):
            work.queue = None
    return owners


def _wanted(works: Iterable[Work], downstreams: dict[Key, DownstreamCapacity], reconciler: Reconciler) -> Wanted:
    pools = tuple(
        asked.pool(
            work.queue,
            spec,
            key=views.pool_key(work.key, spec.name),
            revision=reconciler.revision(work, spec),
            database=work.database_name,
            surges=True,
        )
        for work in works
        if work.queue is not None
        for spec in work.queue.spec.classes
    )
    return Wanted(pools=pools, capacities=tuple(asked.capacity(d) for _, d in sorted(downstreams.items())))
