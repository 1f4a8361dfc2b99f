"""One run: a workload, a start delay, a policy."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from bench.autoscaling.engine import Engine

if TYPE_CHECKING:
    from bench.autoscaling.load import Load, StartDelay
    from bench.autoscaling.policies.policy import Policy

FIRST_LOOK = 0.25
"""Part of its period after which a policy decides first: a step at a whole minute is not seen at once."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a plot shows of one moment."""

    at: float
    oldest_age: float
    pods: int
    ready: int


def run(load: Load, delay: StartDelay, policy: Policy, *, every: float = 0.0) -> tuple[Engine, list[Sample]]:
    """Run to the horizon; with `every`, take a sample every so many seconds."""
    engine = Engine(load, delay)
    samples: list[Sample] = []
    decide_at, sample_at = policy.period * FIRST_LOOK, every or inf
    while True:
        wake = max(engine.next_due, engine.now) + policy.woken_after(engine)
        at = min(decide_at, wake, sample_at)
        if at >= load.horizon:
            engine.advance(load.horizon)
            return engine, samples
        engine.advance(at)
        if at == sample_at:
            samples.append(_sample(engine))
            sample_at += every
        if at in {decide_at, wake}:
            policy.act(engine)
            decide_at = at + policy.period
    raise AssertionError


def _sample(engine: Engine) -> Sample:
    oldest = engine.oldest_due
    ready = sum(pod.ready_at <= engine.now and not pod.closed for pod in engine.alive)
    return Sample(engine.now, engine.now - oldest if oldest < inf else 0.0, len(engine.alive), ready)
