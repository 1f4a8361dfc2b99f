"""The last step of a tick: what happened to workers is said, and the queue is told of those that died."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from jobqueue.errors import JobQueueError
from jobqueue_operator import observe
from jobqueue_operator.planner.facts import Facts, Phase
from jobqueue_operator.platforms import Event, Happening

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Iterator

    from jobqueue_operator.queues.gather import Sight
    from jobqueue_operator.queues.queue import Queue
    from jobqueue_operator.queues.saying import Level
    from jobqueue_operator.up.report import Reporter

_T = TypeVar("_T")


class Teller:
    """Says what is news. It remembers what it said last of each class."""

    def __init__(self, queue: Queue, reporter: Reporter) -> None:
        self._queue = queue
        self._reporter = reporter
        self._said: dict[str, str] = {}
        self._strangers: frozenset[str] = frozenset()
        self.looping: dict[str, str] = {}
        """Classes whose workers do not come up, with what they said last."""

    async def tell(self, events: Iterable[Event], sight: Sight) -> None:
        """Say what happened since the last tick."""
        self._listen_again(sight.facts)
        for event in events:
            self._say(event)
            await self._forget(event, sight)
        for class_ in {w.class_ for w in sight.facts.workers if w.phase is Phase.READY} & set(self.looping):
            del self.looping[class_]
            self._said.pop(class_, None)
            self._reporter.say("info", f"class {class_}: a worker is up again", **{"class": class_})

    def tell_strangers(self, sight: Sight, known: Iterable[str]) -> None:
        """Say which classes have jobs here and are in no manifest, once each time that changes."""
        names = frozenset(known)
        found = {
            c.class_: c.unfinished
            for c in (sight.snapshot.classes if sight.snapshot is not None else ())
            if c.class_ not in names and c.unfinished
        }
        if sight.snapshot is None or found.keys() == self._strangers:
            return
        for name in sorted(found.keys() - self._strangers):
            self._reporter.say(
                "warning", f"class {name} is not in the manifest: nobody here works on its {found[name]} jobs"
            )
        self._strangers = frozenset(found)

    async def attempt(self, what: str, call: Awaitable[_T]) -> _T | None:
        """Await something that may fail without harm; say so when it does."""
        try:
            return await call
        except JobQueueError as error:
            self._reporter.say("warning", f"{what} failed: {error}")
            return None

    def _listen_again(self, facts: Facts) -> None:
        """Leave the last death of a class behind once its workers are all up again: what happens next is news."""
        fine = {Phase.READY, Phase.RETIRED}
        troubled = {w.class_ for w in facts.workers if w.phase not in fine} | set(self.looping)
        for class_ in set(self._said) - troubled:
            del self._said[class_]

    def _say(self, event: Event) -> None:
        details = {"class": event.class_, "worker": event.worker, "what": event.happening.value}
        match event.happening:
            case Happening.STARTED | Happening.DRAINED:
                # A worker that starts again and again was said once; the rest is in its log.
                if event.class_ not in self._said:
                    self._reporter.say("info", f"{event.worker} {event.happening.value}", **details)
            case Happening.KILLED:
                self._reporter.say("warning", f"{event.worker} {event.message}", **details)
            case Happening.DIED:
                if self._said.get(event.class_) != event.message:
                    self._said[event.class_] = event.message
                    self._reporter.say("error", f"{event.worker} died and is started again: {event.message}", **details)
            case Happening.GONE:
                self._reporter.say("warning", f"{event.worker} died when it was retired: {event.message}", **details)
            case Happening.LOOPING:
                if event.class_ not in self.looping:
                    self._reporter.say(
                        "error", f"class {event.class_}: its workers do not come up: {event.message}", **details
                    )
                self.looping[event.class_] = event.message

    async def _forget(self, event: Event, sight: Sight) -> None:
        """Tell the queue of a death, which it would only notice when the leases end: that process is surely gone."""
        if sight.snapshot is None or event.happening not in {Happening.DIED, Happening.GONE, Happening.KILLED}:
            return
        worker = next((w for w in sight.facts.workers if w.name == event.worker), None)
        if worker is None or event.happening is not Happening.DIED:
            gone = observe.all_registrations(sight.snapshot, event.class_, event.worker)
        else:
            gone = observe.earlier_registrations(sight.snapshot, worker)
        if gone:
            await self.attempt("forgetting a dead worker", self._queue.forget(gone))


class _Handler(logging.Handler):
    def __init__(self, reporter: Reporter) -> None:
        super().__init__(logging.INFO)
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        level: Level = "warning" if record.levelno >= logging.WARNING else "info"
        self._reporter.say(level, record.getMessage())


@contextmanager
def said_by_wakeup(reporter: Reporter) -> Iterator[None]:
    """Have the listener's log lines reported: written to standard error they would tear a table on the terminal."""
    log, handler = logging.getLogger("jobqueue.wakeup"), _Handler(reporter)
    before = log.level, log.propagate
    log.addHandler(handler)
    log.propagate = False
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.level, log.propagate = before
