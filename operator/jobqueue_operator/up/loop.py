"""Observe → plan → act, once a tick, until told to stop or until there is nothing left to do."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from jobqueue.errors import JobQueueError
from jobqueue_operator import observe
from jobqueue_operator.planner.decide import plan
from jobqueue_operator.planner.facts import Facts, Phase
from jobqueue_operator.planner.plan import Plan
from jobqueue_operator.planner.wanted import PoolSpec, Wanted
from jobqueue_operator.platforms import Event, Happening
from jobqueue_operator.up import finish
from jobqueue_operator.up.report import Reporter, rows

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from jobqueue.signals import Snapshot
    from jobqueue_operator.platforms import Platform
    from jobqueue_operator.resources import ClassSpec

_T = TypeVar("_T")

MAINTAIN_EVERY = 600.0
"""Seconds between two maintenance runs."""


class Queue(Protocol):
    """What the loop needs of the database. Every call raises JobQueueError when the database does not answer."""

    async def snapshot(self) -> Snapshot:
        """Return all facts of all classes."""

    async def done(self) -> Mapping[str, int]:
        """Return how many jobs of each class are done; a little old when counting takes long."""

    async def due_within(self, seconds: float) -> Mapping[str, int]:
        """Return how many jobs of each class become due within this time."""

    async def forget(self, workers: Sequence[int]) -> int:
        """End workers that are known to be dead; return how many jobs they lost."""

    async def upkeep(self, *, maintain: bool) -> None:
        """Sweep, and run maintenance as well when asked to."""


@dataclass(slots=True)
class Loop:
    """The loop and what it remembers between ticks."""

    classes: Sequence[ClassSpec]
    revisions: Mapping[str, str]
    """Per class, what its workers should be made from."""
    platform: Platform
    queue: Queue
    reporter: Reporter
    ending: finish.Ending
    interval: float = 1.0
    """Seconds between two ticks."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    looping: dict[str, str] = field(default_factory=dict)
    """Classes whose workers do not come up, with what they said last."""
    _said: dict[str, str] = field(default_factory=dict)
    _plan: Plan | None = None
    _blind: bool = False
    _maintained_at: float | None = None

    async def run(self) -> int:
        """Work until stopped or finished; return the exit status. The workers are still up when this returns."""
        began = time.monotonic()
        verdict = finish.Verdict(self.ending, self.reporter)
        while not self.stopping.is_set():
            tick_began = time.monotonic()
            facts = await self.tick(tick_began)
            soon = await self._soon(facts)
            names = [spec.name for spec in self.classes]
            status = verdict.of(names, facts, soon, self.looping, elapsed=tick_began - began, now=tick_began)
            if status is not None:
                return status
            await self._pause(tick_began, began)
        return 0

    async def tick(self, now: float) -> Facts:
        """Observe, plan and act once."""
        snapshot = await self._look()
        facts = observe.facts(snapshot, await self.platform.observe())
        self._plan = plan(self._wanted(), facts, self._plan, now=time.time(), tick=self.interval)
        await self.platform.apply(self._plan)
        self._listen_again(facts)
        for event in self.platform.events():
            self._tell(event)
            if snapshot is not None:
                await self._forget(event, facts, snapshot)
        for class_ in {w.class_ for w in facts.workers if w.phase is Phase.READY} & set(self.looping):
            del self.looping[class_]
            self._said.pop(class_, None)
            self.reporter.say("info", f"class {class_}: a worker is up again", **{"class": class_})
        if snapshot is not None:
            maintain = self._maintained_at is None or now - self._maintained_at > MAINTAIN_EVERY
            if maintain:
                self._maintained_at = now
            await self._try("upkeep", self.queue.upkeep(maintain=maintain))
        done = await self._try("counting", self.queue.done()) if snapshot is not None else None
        self.reporter.tick(rows(self.classes, facts, self._plan, done, self.looping))
        return facts

    def _wanted(self) -> Wanted:
        return Wanted(pools=tuple(PoolSpec(key=s.name, spec=s, revision=self.revisions[s.name]) for s in self.classes))

    async def show(self) -> None:
        """Observe and show, without deciding or starting anything: while everything drains."""
        snapshot = await self._look()
        facts = observe.facts(snapshot, await self.platform.observe())
        for event in self.platform.events():
            self._tell(event)
            if snapshot is not None:
                await self._forget(event, facts, snapshot)
        done = await self._try("counting", self.queue.done()) if snapshot is not None else None
        self.reporter.tick(rows(self.classes, facts, Plan(()), done, self.looping))

    async def _look(self) -> Snapshot | None:
        try:
            snapshot = await self.queue.snapshot()
        except JobQueueError as error:
            if not self._blind:
                self.reporter.say("error", f"the queue cannot be read; the workers stay as they are: {error}")
            self._blind = True
            return None
        if self._blind:
            self.reporter.say("info", "the queue can be read again")
            self._blind = False
        return snapshot

    async def _soon(self, facts: Facts) -> Mapping[str, int]:
        if not self.ending.when_empty or not facts.visible:
            return {}
        if any(c.ready or c.in_flight for c in facts.classes.values()):
            return {}
        if not any(c.scheduled for c in facts.classes.values()):
            return {}
        return await self._try("looking ahead", self.queue.due_within(finish.SOON)) or {}

    def _listen_again(self, facts: Facts) -> None:
        """Leave the last death of a class behind once its workers are all ready again: what happens next is news."""
        troubled = {w.class_ for w in facts.workers if w.phase is not Phase.READY} | set(self.looping)
        for class_ in set(self._said) - troubled:
            del self._said[class_]

    def _tell(self, event: Event) -> None:
        details = {"class": event.class_, "worker": event.worker, "what": event.happening.value}
        match event.happening:
            case Happening.STARTED | Happening.DRAINED:
                # A worker that starts again and again was said once; the rest is in its log.
                if event.class_ not in self._said:
                    self.reporter.say("info", f"{event.worker} {event.happening.value}", **details)
            case Happening.KILLED:
                self.reporter.say("warning", f"{event.worker} {event.message}", **details)
            case Happening.DIED:
                if self._said.get(event.class_) != event.message:
                    self._said[event.class_] = event.message
                    self.reporter.say("error", f"{event.worker} died and is started again: {event.message}", **details)
            case Happening.LOOPING:
                if event.class_ not in self.looping:
                    self.reporter.say(
                        "error", f"class {event.class_}: its workers do not come up: {event.message}", **details
                    )
                self.looping[event.class_] = event.message

    async def _forget(self, event: Event, facts: Facts, snapshot: Snapshot) -> None:
        """Tell the queue of a death, which it would only notice when the leases end: that process is surely gone."""
        if event.happening not in {Happening.DIED, Happening.KILLED}:
            return
        worker = next((w for w in facts.workers if w.name == event.worker), None)
        if worker is None:
            gone = observe.all_registrations(snapshot, event.class_, event.worker)
        else:
            gone = observe.earlier_registrations(snapshot, worker)
        if gone:
            await self._try("forgetting a dead worker", self.queue.forget(gone))

    async def _try(self, what: str, call: Awaitable[_T]) -> _T | None:
        try:
            return await call
        except JobQueueError as error:
            self.reporter.say("warning", f"{what} failed: {error}")
            return None

    async def _pause(self, tick_began: float, began: float) -> None:
        left = max(self.interval - (time.monotonic() - tick_began), 0.05)
        if self.ending.after is not None:
            left = max(min(left, began + self.ending.after - time.monotonic()), 0.0)
        waiting = asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait({waiting}, timeout=left)
        finally:
            waiting.cancel()
