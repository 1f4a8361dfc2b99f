"""Estimates from one tick's facts: how long an attempt takes, how many jobs arrive, how long a start takes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from jobqueue_operator.planner.facts import Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobqueue_operator.planner.facts import Arrivals, Attempts, ClassFacts, Span, WorkerFacts
    from jobqueue_operator.planner.memory import ClassMemory

PRIOR_WEIGHT = 5.0
"""Attempts that the prior counts as."""
PRIOR_MEMORY = 100.0
"""Attempts after which an old prior has lost most of its weight."""
SERVICE_UNKNOWN = 1.0
"""Seconds that an attempt is taken for before the first one was seen."""
START_DELAY_UNKNOWN = 5.0
"""Seconds that a start is taken for before the first one was seen."""
DELAYS_KEPT = 20
LATELY_LEAST = 5.0
"""Attempts below which what ended lately says nothing."""
SIGMAS = 4.0
"""Standard errors by which fewer attempts must have ended lately than should have, before that is believed."""


def cut_off(span: Span, limit: float) -> float:
    """Return the seconds of a span's attempts, each cut off at `limit`."""
    return min(span.seconds, span.count * limit)


def service(attempts: Attempts, memory: ClassMemory, *, deadline: float) -> float:
    """Return E[min(S, deadline)], the mean length of an attempt in seconds.

    Over the cohort of attempts by the time of their start. One that still runs counts with the time that it has run,
    or with the last mean when that is longer: leaving it out would make every slow-down look like a speed-up. Cut off
    at the deadline, because a slot that is held longer than that is counted by itself (`giants`), and a mean of
    heavy-tailed lengths without a bound is a lottery. Few attempts are drawn towards the prior.
    """
    before = memory.service if memory.service is not None else memory.prior
    least = min(before if before is not None else 0.0, deadline)
    count = sum(span.count for span in attempts.finished)
    total = sum(cut_off(span, deadline) for span in attempts.finished)
    for span in attempts.running:
        if span.longest <= attempts.window and span.count > 0:
            count += span.count
            total += span.count * min(deadline, max(span.seconds / span.count, least))
    prior = min(memory.prior if memory.prior is not None else SERVICE_UNKNOWN, deadline)
    return (total + PRIOR_WEIGHT * prior) / (count + PRIOR_WEIGHT)


def prior(attempts: Attempts, memory: ClassMemory, mean: float, *, tick: float) -> float:
    """Return the prior after this tick: it moves by the share of its memory that the tick's new attempts are."""
    if memory.prior is None:
        return mean
    started = sum(span.count for span in attempts.finished) + sum(
        span.count for span in attempts.running if span.longest <= attempts.window
    )
    new = started * min(tick / max(attempts.window, tick), 1.0)
    return memory.prior + (mean - memory.prior) * -math.expm1(-new / PRIOR_MEMORY)


def giants(attempts: Attempts, *, deadline: float) -> float:
    """Return how many running attempts are older than the deadline. Each holds a slot for nobody knows how long."""
    return sum(span.count for span in attempts.running if span.count > 0 and span.seconds > deadline * span.count)


def lately(attempts: Attempts, *, otherwise: float) -> float:
    """Return the mean length of the attempts that ended in the last two ticks, in seconds, if there were enough.

    The cohort of `service` reaches back half a minute and more, which is too slow to see what a change of the number in
    flight did.
    """
    count, seconds = attempts.lately
    return seconds / count if count >= LATELY_LEAST else otherwise


def occupied(attempts: Attempts, slots: float, *, tick: float, deadline: float) -> float:
    """Return the seconds of a slot that each attempt takes at least, by what ended in the last two ticks; 0 if unknown.

    The slots' time over the attempts that ended in it (Little's law), as if four standard errors more had ended. The
    cohort of `service` is half a minute long and more; when attempts become longer, few start, and it stays as it was.
    `slots`: those without giants; they had no more than two ticks each.
    """
    count, seconds = attempts.lately
    if count < LATELY_LEAST:
        return 0.0
    span = 2.0 * tick
    running = sum(min(s.seconds, s.count * span) for s in attempts.running if s.seconds <= deadline * s.count)
    spent = min(running + min(seconds, count * tick), max(slots, 0.0) * span)
    return min(spent / (count + SIGMAS * math.sqrt(count)), deadline)


def rate(arrivals: Arrivals) -> float:
    """Return the arrivals a second that are likely to go on.

    A batch is not a rate: a minute's mean, or twenty seconds' with its standard error, whichever is less. A step is
    one: what both of the last two ticks saw, less twice its standard error, is believed at once.
    """
    lasting = min(arrivals.in_60s / 60.0, (arrivals.in_20s + math.sqrt(arrivals.in_20s)) / 20.0)
    both = min(arrivals.last, arrivals.before)
    step = max(both - 2.0 * math.sqrt(both), 0.0) / arrivals.tick
    return max(lasting, step)


def due_within(seen: ClassFacts, seconds: float) -> int:
    """Return how many scheduled jobs become due within this time, by the next horizon that was counted."""
    for horizon, count in seen.due_soon:
        if horizon >= seconds:
            return count
    return seen.due_soon[-1][1] if seen.due_soon else 0


def delays(workers: Sequence[WorkerFacts], memory: ClassMemory) -> tuple[tuple[str, float], ...]:
    """Return the start delays to remember: one a worker, of the workers seen last."""
    known = dict(memory.delays)
    known.update({w.name: w.started_in for w in workers if w.started_in is not None and 0 <= w.started_in < math.inf})
    return tuple(known.items())[-DELAYS_KEPT:]


def start_delay(measured: Sequence[tuple[str, float]], memory: ClassMemory) -> float:
    """Return the 90th percentile of the time from a worker's creation until it could claim, in seconds."""
    if measured:
        ordered = sorted(delay for _, delay in measured)
        return ordered[math.ceil(0.9 * len(ordered)) - 1]
    return memory.start_delay if memory.start_delay is not None else START_DELAY_UNKNOWN


def slots(worker: WorkerFacts, stated: int) -> int:
    """Return how many jobs a worker can run at once."""
    return worker.slots if worker.slots is not None and worker.slots > 0 else stated


def coming(worker: WorkerFacts) -> bool:
    """Whether a worker that is not ready is on its way, rather than failing or waiting for units."""
    return worker.phase is Phase.STARTING and worker.admitted
