"""How many workers a class needs to keep its oldest message younger than the target. docs/scaling.md derives it.

Symbols as there: T target, dl deadline, R recovery, tau start delay, c slots of a worker, s mean length of an attempt,
s_b the same from what ended lately, L giants, lambda rate of arrivals, Q ready jobs that can run, F in flight, Z due
within tau.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobqueue_operator.planner import estimate, window
from jobqueue_operator.planner.facts import Phase
from jobqueue_operator.planner.plan import Terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobqueue_operator.planner.facts import ClassFacts, WorkerFacts
    from jobqueue_operator.planner.memory import ClassMemory

QUANTILES = 8
ROUNDING = 0.05
"""A twentieth of a worker is not worth one."""
MOST = 1_000_000
"""A number of workers that stands for «more than anybody has»."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """Jobs that wait and that more workers can help."""

    workable: float
    """Q."""
    ages: tuple[float, ...]
    """Oldest first, at the quantiles 0, 1/8 … 7/8 of the workable ones; empty when there are none."""


def backlog(seen: ClassFacts) -> Backlog:
    """Return the jobs that more workers can help."""
    workable = float(max(seen.ready - seen.blocked, 0))
    if not workable:
        return Backlog(0.0, ())
    ages = seen.ages or (seen.oldest_age,)
    # Which of the jobs are blocked is not said: taken to be the oldest, since what can run has run before.
    passed = 1.0 - workable / seen.ready
    return Backlog(workable, tuple(_quantile(ages, passed + (1.0 - passed) * k / QUANTILES) for k in range(QUANTILES)))


def _quantile(ages: Sequence[float], position: float) -> float:
    """Return the age at a position between 0 (oldest) and 1, on the line between the quantiles that are known."""
    exact = position * len(ages)
    low = min(int(exact), len(ages) - 1)
    high = min(low + 1, len(ages) - 1)
    return ages[low] + (ages[high] - ages[low]) * min(exact - low, 1.0)


def deadline(target: float, tick: float) -> float:
    """Return dl: the target less what a decision may come late by, two ticks or a fifth; at least a quarter of it."""
    return max(target - max(0.2 * target, 2.0 * tick), target / 4.0)


def terms(
    seen: ClassFacts,
    workers: Sequence[WorkerFacts],
    memory: ClassMemory,
    *,
    target: float,
    stated_slots: int,
    tick: float,
) -> tuple[Terms, Backlog]:
    """Return the law's terms for one class's facts. Pure arithmetic: no bound of the manifest is in it."""
    tau = estimate.start_delay(estimate.delays(workers, memory), memory)
    dl = deadline(target, tick)
    recovery = max(target / 4.0, 2.0 * tick)
    ready = [w for w in workers if w.phase is Phase.READY]
    pending = [w for w in workers if estimate.coming(w)]
    c = stated_slots
    waiting = backlog(seen)
    s = estimate.service(seen.attempts, memory, deadline=dl)
    giants = min(estimate.giants(seen.attempts, deadline=dl), float(seen.in_flight))
    rate = 0.0 if _none_can_run(seen, waiting) else estimate.rate(seen.arrivals)
    soon = estimate.due_within(seen, tau)
    # When a worker cannot be up in time for a job that is enqueued now, half a worker less is no saving.
    theta = min(0.5, max(1.0 - (tau + 2.0 * tick) / dl, 0.0))

    have = sum(estimate.slots(w, c) for w in ready) - giants
    # Only while jobs wait: otherwise what it is off by now and then would keep workers for nothing.
    occupied = estimate.occupied(seen.attempts, have, tick=tick, deadline=dl) if waiting.workable else 0.0
    each = max(s, occupied)
    load = rate * each + giants
    steady = _workers(load / c - theta)
    # A part of a worker that was left out, and wanted again soon, is worth a whole one for as long as W is longer.
    rounding = 0.0 if memory.window is not None and memory.window > window.first(tau) else theta
    lasting = _workers((rate * s + giants) / c - rounding)
    catch_up = floor = 0.0
    for jobs, age in _steps(waiting, soon):
        # The last of them must begin by then: slots that are done with all of them one attempt later are enough.
        left = max(dl - age, tau + recovery) + each
        work = max(jobs + seen.in_flight - giants, 0.0) * each
        can = have * left + sum(estimate.slots(w, c) * max(left - _eta(w, tau, tick), 0.0) for w in pending)
        catch_up = max(catch_up, (work - can) / (c * (left - tau)))
        floor = max(floor, (work / left + giants) / c)
    jobs = waiting.workable + seen.in_flight + soon
    any_job = jobs > 0 or seen.ready > 0
    useful = max(_workers((jobs + rate * tick) / c), int(any_job))
    up = _workers(len(ready) + len(pending) + catch_up - ROUNDING) if catch_up > 0 else 0
    need = max(steady, _workers(floor - theta), int(any_job))
    return Terms(
        target=target,
        deadline=dl,
        recovery=recovery,
        start_delay=tau,
        slots=c,
        service=s,
        occupied=occupied,
        giants=giants,
        rate=rate,
        load=load,
        steady=min(steady, useful),
        lasting=min(lasting, useful),
        catch_up=catch_up,
        floor=floor,
        up=min(up, useful),
        need=min(need, useful),
        useful=useful,
    ), waiting


def _none_can_run(seen: ClassFacts, waiting: Backlog) -> bool:
    """Whether all that waits is blocked and nothing runs or ran lately: then what arrives is no work for anybody."""
    ran = seen.in_flight > 0 or any(span.count > 0 for span in seen.attempts.finished)
    return seen.ready > 0 and not waiting.workable and not ran


def _steps(waiting: Backlog, soon: int) -> Iterator[tuple[float, float]]:
    """Yield (jobs, age): so many jobs must be done before the one of this age is late."""
    for k, age in enumerate(waiting.ages, start=1):
        yield k * waiting.workable / QUANTILES, age
    yield waiting.workable + soon, 0.0


def _eta(worker: WorkerFacts, tau: float, tick: float) -> float:
    """Return the seconds until a starting worker can claim; one that is overdue is expected within a tick."""
    return max(tau - max(worker.age, 0.0), min(tick, tau))


def _workers(number: float) -> int:
    """Round up to whole workers, within what an integer and a fleet can be."""
    return math.ceil(min(max(number, 0.0), MOST))
