"""Gather → plan → carry out → tell, once a tick, until told to stop or until there is nothing left to do."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobqueue_operator.planner import estimate
from jobqueue_operator.planner.decide import plan
from jobqueue_operator.planner.plan import Plan
from jobqueue_operator.planner.record import Tick
from jobqueue_operator.queues.carry_out import Executor
from jobqueue_operator.queues.gather import Gatherer, LeadershipLost, Sight, check_lead
from jobqueue_operator.queues.remembering import Memories
from jobqueue_operator.queues.upkeep import Upkeep
from jobqueue_operator.up import finish
from jobqueue_operator.up.report import Reporter, capacity_rows, rows
from jobqueue_operator.up.tell import Teller

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobqueue_operator.planner.facts import Facts
    from jobqueue_operator.planner.wanted import Wanted
    from jobqueue_operator.platforms import Platform
    from jobqueue_operator.queues.queue import Queue
    from jobqueue_operator.queues.waking import Waker
    from jobqueue_operator.up.recording import Recording


@dataclass(slots=True)
class Loop:
    """The loop and what it remembers between ticks."""

    wanted: Wanted
    platform: Platform
    queue: Queue
    reporter: Reporter
    ending: finish.Ending
    waker: Waker
    recording: Recording | None = None
    interval: float = 1.0
    """Seconds between two ticks at most."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    leading: bool = True
    _gatherer: Gatherer = field(init=False)
    _executor: Executor = field(init=False)
    _teller: Teller = field(init=False)
    _memories: Memories = field(init=False)
    _upkeep: Upkeep = field(init=False)
    _restored: bool = False
    _plan: Plan | None = None

    def __post_init__(self) -> None:
        self._gatherer = Gatherer(self.queue, self.platform, self.reporter, tick=self.interval)
        self._executor = Executor(self.queue, self.platform, self.reporter)
        self._teller = Teller(self.queue, self.reporter)
        self._memories = Memories(self.queue)
        self._upkeep = Upkeep(self.queue)

    async def run(self) -> int:
        """Work until stopped or finished; return the exit status. The workers are still up when this returns."""
        began = time.monotonic()
        verdict = finish.Verdict(self.ending, self.reporter)
        await self.waker.start()
        try:
            while not self.stopping.is_set():
                tick_began = time.monotonic()
                facts = await self.tick(tick_began)
                soon = self._soon(facts)
                names = [pool.key for pool in self.wanted.pools]
                looping = self._teller.looping
                pinned = [pool.key for pool in self.wanted.pools if pool.spec.replicas.pin == 0]
                elapsed = tick_began - began
                status = verdict.of(names, facts, soon, looping, pinned=pinned, elapsed=elapsed, now=tick_began)
                if status is not None:
                    return status
                await self._pause(tick_began, began)
        except LeadershipLost as lost:
            self.leading = False
            self.reporter.say(
                "error", f"another operator has taken this database over; this one stops acting and drains: {lost}"
            )
            return 1
        finally:
            await self._end()
        return 0

    async def _end(self) -> None:
        await self.waker.stop(leading=self.leading)
        if self.leading and self._restored and self._plan is not None:
            await self._teller.attempt("remembering", self._memories.keep(self._plan, last=True))

    async def tick(self, now: float) -> Facts:
        """Take the four steps once; `now` in seconds on a monotonic clock. Raises LeadershipLost."""
        sight = await self._gatherer.look()
        check_lead(self.queue.epoch, sight.snapshot)
        if sight.snapshot is not None and not self._restored:
            self._plan, self._restored = self._memories.restore(sight.snapshot), True
        decided = self._decide(sight.facts)
        facts = await self._executor.carry_out(decided, sight)
        await self._teller.attempt("asking to be woken", self.waker.update(self.wanted, decided, sight))
        await self._tell(sight, facts, decided)
        if sight.snapshot is not None:
            await self._teller.attempt("remembering", self._memories.keep(decided))
            await self._teller.attempt("upkeep", self._upkeep.run(now))
        return facts

    async def show(self) -> None:
        """Gather and tell, without deciding or starting anything: while everything drains."""
        sight = await self._gatherer.look()
        await self._tell(sight, sight.facts, Plan(()))

    def _decide(self, facts: Facts) -> Plan:
        previous, now = self._plan, time.time()
        self._plan = plan(self.wanted, facts, previous, now=now, tick=self.interval)
        if self.recording is not None:
            self.recording.write(
                Tick(now=now, tick=self.interval, wanted=self.wanted, facts=facts, plan=self._plan, previous=previous)
            )
        return self._plan

    async def _tell(self, sight: Sight, facts: Facts, plan: Plan) -> None:
        await self._teller.tell(self.platform.events(), sight)
        self._teller.tell_strangers(sight, [pool.key for pool in self.wanted.pools])
        seen = sight.snapshot is not None
        done = await self._teller.attempt("counting", self.queue.done()) if seen else None
        self.reporter.tick(rows(self.wanted, facts, plan, done, self._teller.looping), capacity_rows(plan))

    def _soon(self, facts: Facts) -> Mapping[str, int]:
        if not self.ending.when_empty or not facts.visible:
            return {}
        if any(c.ready or c.in_flight for c in facts.classes.values()):
            return {}
        return {name: estimate.due_within(seen, finish.SOON) for name, seen in facts.classes.items()}

    async def _pause(self, tick_began: float, began: float) -> None:
        now = time.monotonic()
        left = self.interval - (now - tick_began)
        if self.ending.after is not None:
            left = min(left, began + self.ending.after - now)
        stopping = asyncio.ensure_future(self.stopping.wait())
        waiting = asyncio.ensure_future(self.waker.wait(left))
        try:
            await asyncio.wait({stopping, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            waiting.cancel()
