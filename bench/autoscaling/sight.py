"""The facts that the planner gets, as the queue's snapshot and the platform would report them."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from jobqueue_operator.planner.facts import Arrivals, Attempts, ClassFacts, Facts, Phase, Span, WorkerFacts

if TYPE_CHECKING:
    import numpy.typing as npt

    from bench.autoscaling.engine import Engine, Pod

HORIZONS = (5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
"""Seconds ahead at which what becomes due is counted."""
COHORT_SECONDS, COHORT_LEAST, COHORT_MOST = 30.0, 500, 5_000
SHORTEST = 0.001
"""Seconds: attempts at most this long share a bucket."""


def facts(engine: Engine, key: str, revision: str, *, tick: float) -> Facts:
    """Observe the engine now."""
    return Facts(
        classes={key: class_facts(engine, tick=tick)},
        workers=tuple(worker_facts(engine, pod, key, revision) for pod in engine.alive),
    )


def class_facts(engine: Engine, *, tick: float) -> ClassFacts:
    """Return what the queue knows of the class."""
    now, load = engine.now, engine.load
    waiting = engine.waiting_due()
    many = len(waiting)
    ages = tuple(now - waiting[k * many // 8] for k in range(8)) if many else ()
    ahead = np.searchsorted(load.scheduled, now, side="right")
    seen = np.searchsorted(load.scheduled, now + load.known_ahead, side="right")
    return ClassFacts(
        ready=many,
        ages=ages,
        oldest_age=ages[0] if ages else 0.0,
        scheduled=int(seen - ahead) + engine.retries_between(now, np.inf),
        due_soon=tuple((h, _due_soon(engine, h)) for h in HORIZONS),
        in_flight=int(engine.in_flight),
        arrivals=Arrivals(
            tick=tick,
            last=engine.due_between(now - tick, now),
            before=engine.due_between(now - 2 * tick, now - tick),
            in_20s=engine.due_between(now - 20, now),
            in_60s=engine.due_between(now - 60, now),
        ),
        attempts=attempts(engine, tick=tick),
    )


def _due_soon(engine: Engine, horizon: float) -> int:
    now, load = engine.now, engine.load
    until = min(now + horizon, now + load.known_ahead)
    scheduled = np.searchsorted(load.scheduled, until, side="right") - np.searchsorted(
        load.scheduled, now, side="right"
    )
    return max(int(scheduled), 0) + engine.retries_between(now, now + horizon)


def attempts(engine: Engine, *, tick: float) -> Attempts:
    """Return the cohort of attempts: those started in the last 30 s, or the last 500 if that is longer ago.

    What ended in the last two ticks is looked for among the last 5,000 starts: the slots are far fewer.
    """
    now, log = engine.now, engine.log
    starts = log.start
    most = max(len(starts) - COHORT_MOST, 0)
    first = max(min(bisect_left(starts, now - COHORT_SECONDS), len(starts) - COHORT_LEAST), most)
    began, ended = np.array(starts[most:]), np.array(log.end[most:])
    over = ended <= now
    if log.lost:
        over &= np.array([run not in log.lost for run in range(most, len(starts))], dtype=bool)
    late = over & (ended > now - 2 * tick)
    lately = float(late.sum()), float((ended - began)[late].sum())
    began, ended, over = began[first - most :], ended[first - most :], over[first - most :]
    failed = sum(1 for run in range(first, len(starts)) if run in log.failed and log.end[run] <= now)
    live = [run for pod in engine.alive for run in engine.busy(pod)]
    return Attempts(
        window=max(now - starts[first], COHORT_SECONDS) if starts else COHORT_SECONDS,
        finished=_spans((ended - began)[over]),
        running=_spans(now - np.array([starts[run] for run in live], dtype=np.float64)),
        failed=failed,
        lately=lately,
    )


def _spans(lengths: npt.NDArray[np.float64]) -> tuple[Span, ...]:
    """Sort lengths into buckets whose bounds grow by the fourth root of two."""
    if not len(lengths):
        return ()
    steps = np.ceil(4 * np.log2(np.maximum(lengths, SHORTEST))).astype(np.int64)
    low = int(steps.min())
    counts = np.bincount(steps - low)
    sums = np.bincount(steps - low, weights=lengths)
    return tuple(
        Span(2.0 ** ((low + k) / 4), float(counts[k]), float(sums[k])) for k in range(len(counts)) if counts[k]
    )


def worker_facts(engine: Engine, pod: Pod, key: str, revision: str) -> WorkerFacts:
    """Return what the platform and the queue know of one worker."""
    now = engine.now
    held = engine.busy(pod)
    ready = pod.ready_at <= now
    if pod.ending:
        phase = Phase.DRAINING
    elif pod.closed:
        phase = Phase.RETIRED
    else:
        phase = Phase.READY if ready else Phase.STARTING
    return WorkerFacts(
        name=pod.name,
        class_=key,
        phase=phase,
        revision=revision,
        age=now - pod.created,
        busy=len(held),
        elapsed=sum(now - engine.log.start[run] for run in held),
        slots=engine.load.slots,
        started_in=pod.ready_at - pod.created if ready else None,
    )
