"""What a record says that a class met, step by step: arrivals, lengths, start delays. The same for every policy."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobqueue_operator.planner.modelled import Load
from jobqueue_operator.planner.score import Differences, Score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobqueue_operator.planner.facts import Attempts, ClassFacts, WorkerFacts
    from jobqueue_operator.planner.plan import Decision

ENOUGH = 20.0
"""Finished attempts that make a mean by themselves."""
FORGET = 300.0
"""Seconds after which slots and completions seen then count a third."""
SERVICE = 1.0
START_DELAY = 5.0
"""Seconds, until something was seen."""
MOST = 1e12


@dataclass(slots=True)
class Course:
    """One class as it was recorded, up to the last step."""

    recorded: Score = field(default_factory=Score)
    differences: Differences = field(default_factory=Differences)
    _seen: ClassFacts | None = None
    seen_at: float = 0.0
    """The moment of the last look."""
    uncounted: bool = False
    """Whether jobs came that the recorded arrivals do not count."""
    _workers: int = 0
    _decision: Decision | None = None
    _service: float | None = None
    _start_delay: float = START_DELAY
    _busy: float = 0.0
    """Slot seconds, with those long ago forgotten."""
    _ended: float = 0.0
    """Attempts that ended in them."""
    _before: tuple[int, Decision | None] = (0, None)

    def step(
        self, seen: ClassFacts, workers: Sequence[WorkerFacts], decision: Decision | None, clock: float, limit: float
    ) -> Load:
        """Take one look in, at a moment of a clock that only goes forward; return what came since the last one.

        When that is longer ago than `limit`, what came is not known, and the load says so.
        """
        last, since = self._seen, clock - self.seen_at
        self._seen, self.seen_at = seen, clock
        self._before, self._workers, self._decision = (self._workers, self._decision), len(workers), decision
        self._delay(workers)
        if last is None or since > limit:
            self._mean(seen.attempts, decision)
            return Load(facts=seen, seconds=None, service=self._service or SERVICE, start_delay=self._start_delay)
        came = self._arrived(seen, last, since)
        ended = came - (seen.ready + seen.in_flight - last.ready - last.in_flight)
        kept = math.exp(-since / FORGET)
        self._busy = self._busy * kept + since * (last.in_flight + seen.in_flight) / 2
        self._ended = self._ended * kept + max(ended, 0.0)
        self._mean(seen.attempts, decision)
        return Load(
            facts=seen,
            seconds=since,
            arrivals=max(came - (seen.blocked - last.blocked), 0.0),
            service=self._service or SERVICE,
            start_delay=self._start_delay,
        )

    def score(self, load: Load, target: float) -> None:
        """Count the step that ended with the last look, as it was recorded."""
        workers, decision = self._before
        self.recorded.add(
            load.seconds or 0.0, workers=workers, age=load.facts.oldest_age, target=target, decision=decision
        )

    def _arrived(self, seen: ClassFacts, last: ClassFacts, seconds: float) -> float:
        """Return the jobs that came: those counted, or, where none was, as many as there are more."""
        came = seen.arrivals
        if came.last or came.in_60s:
            return came.last / came.tick * seconds if came.tick > 0 else 0.0
        more = max(seen.ready + seen.in_flight - last.ready - last.in_flight, 0)
        self.uncounted = self.uncounted or more > 0
        return float(more)

    def _mean(self, attempts: Attempts, decision: Decision | None) -> None:
        """Estimate the mean length of an attempt.

        From the attempts that were started lately; where few of them ended, slot seconds over completions (Little's
        law), which takes any length but is coarse; while none ended, what the planner thought.
        """
        if sum(span.count for span in attempts.finished) >= ENOUGH:
            self._service = _mean(attempts)
        elif self._ended >= 1 and self._busy > 0:
            self._service = self._busy / self._ended
        elif decision is not None and decision.terms is not None and decision.terms.service > 0:
            self._service = decision.terms.service

    def _delay(self, workers: Sequence[WorkerFacts]) -> None:
        """Take the start delay of the worker that came up last."""
        known = [(w.age, w.started_in) for w in workers if w.started_in is not None and 0 <= w.started_in < MOST]
        if known:
            self._start_delay = min(known)[1]


def sound(seen: ClassFacts) -> bool:
    """Return whether a class's facts can be true, as far as a replay leans on them."""
    arrivals, attempts = seen.arrivals, seen.attempts
    spans = [n for span in (*attempts.finished, *attempts.running) for n in (span.count, span.seconds)]
    numbers = (
        seen.ready,
        seen.blocked,
        seen.in_flight,
        seen.oldest_age,
        *seen.ages,
        arrivals.last,
        arrivals.tick,
        *spans,
    )
    return all(0 <= number < MOST for number in numbers)


def _mean(attempts: Attempts) -> float:
    """Return the mean length by the product limit (Kaplan and Meier, 1958): running attempts count as far as they are.

    Each span stands for attempts of its mean length. What is left when the longest still runs is taken for as long as
    the average attempt has been seen.
    """
    spans = [(s.seconds / s.count, s.count, True) for s in attempts.finished if s.count > 0]
    spans += [
        (s.seconds / s.count, s.count, False) for s in attempts.running if s.count > 0 and s.longest <= attempts.window
    ]
    spans.sort()
    finished, there = 0.0, sum(count for _, count, _ in spans)
    crude = sum(length * count for length, count, _ in spans)
    mean, before, left = 0.0, 0.0, 1.0
    for length, count, ended in spans:
        mean += left * (length - before)
        before = length
        if ended:
            left *= max(1 - count / there, 0.0)
            finished += count
        there -= count
    return mean + (left * crude / finished if finished else 0.0)
