"""The workloads. Each is a function of a seed; the same seed, the same jobs.

One hour each, target 60 s, four jobs a pod, at most 40 pods where nothing else is said; about eight pods' worth of
work, in jobs of a second to forty seconds, as the classes of one system differ.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from bench.autoscaling.arrivals import bounded_pareto, bounded_pareto_mean, lognormal, poisson, two_states
from bench.autoscaling.load import Kind, Load, Slowdown

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.autoscaling.load import Floats

HORIZON = 3600.0
MEAN, VARIATION = 3.2, 0.7
"""Length of an attempt where nothing else is said: lognormal, seconds."""

AZURE_LOG_MEAN, AZURE_LOG_SIGMA = -0.38, 2.36
AZURE_FUNCTIONS, AZURE_LONGEST, AZURE_WITHIN = 200, 300.0, 0.5


def _generator(name: str, seed: int) -> np.random.Generator:
    return np.random.default_rng((crc32(name.encode()), seed))


def _load(
    rng: np.random.Generator, name: str, kind: Kind, due: Floats, service: Floats | None = None, **more: Any
) -> Load:
    service = lognormal(rng, MEAN, VARIATION, len(due)) if service is None else service
    more.setdefault("first", max(int(np.ceil(service[due < 60].sum() / 60 / more.get("slots", 4))), 1))
    return Load(name=name, kind=kind, due=due, service=service, jitter=rng.random(997), horizon=HORIZON, **more)


def _rated(
    rate: Callable[[Floats], Floats],
    rng: np.random.Generator,
    name: str,
    kind: Kind,
    mean: float = MEAN,
    variation: float = VARIATION,
    **more: Any,
) -> Load:
    due = poisson(rng, rate, HORIZON)
    return _load(rng, name, kind, due, lognormal(rng, mean, variation, len(due)), **more)


def _level(low: float, high: float, *turns: float) -> Callable[[Floats], Floats]:
    """Low, and high between each two turns."""
    return lambda t: np.where(np.searchsorted(np.array(turns), t, side="right") % 2 == 1, high, low)


def _bursts(rng: np.random.Generator, name: str, kind: Kind) -> Load:
    return _rated(two_states(rng, (6.5, 45.0), (240.0, 80.0), HORIZON), rng, name, kind, mean=1.5)


def _batches(rng: np.random.Generator, name: str, kind: Kind) -> Load:
    drops = np.cumsum(rng.uniform(200.0, 500.0, 20))
    drops = drops[drops < HORIZON - 60]
    extra = np.repeat(drops, rng.integers(200, 900, len(drops)))
    return _load(rng, name, kind, np.sort(np.concatenate([poisson(rng, _level(3.0, 3.0), HORIZON), extra])))


def _scheduled(rng: np.random.Generator, name: str, kind: Kind) -> Load:
    planned = np.repeat([900.0, 1800.0, 2700.0], 900)
    due = np.sort(np.concatenate([poisson(rng, _level(3.0, 3.0), HORIZON), planned]))
    return _load(rng, name, kind, due, scheduled=planned, known_ahead=600.0)


def _retries(rng: np.random.Generator, name: str, kind: Kind) -> Load:
    due = poisson(rng, _level(7.0, 7.0), HORIZON)
    failing = ((due > 1200) & (due < 1500)) * rng.integers(2, 6, len(due))
    return _load(rng, name, kind, due, failures=failing)


def _azure(rng: np.random.Generator, name: str, kind: Kind) -> Load:
    """Draw a day in an hour, after the trace of Azure Functions of 2019.

    Shahrad et al., "Serverless in the Wild" (USENIX ATC 2020): the functions' mean execution times are lognormal with
    log-mean -0.38 and sigma 2.36 (seconds), rates differ by orders of magnitude (here shared after Zipf) and follow the
    day. Within a function lengths are lognormal too; none is above 300 s, as long as that service lets a function run
    by default.
    """
    weights = 1 / np.arange(1, AZURE_FUNCTIONS + 1)
    means = np.minimum(rng.lognormal(AZURE_LOG_MEAN, AZURE_LOG_SIGMA, AZURE_FUNCTIONS), AZURE_LONGEST)
    shares = weights / weights.sum()
    rate = 30.0 / float(shares @ means)
    due = poisson(rng, lambda t: rate * (1 - 0.7 * np.cos(2 * np.pi * t / HORIZON)), HORIZON)
    function = rng.choice(AZURE_FUNCTIONS, len(due), p=shares)
    service = np.minimum(means[function] * lognormal(rng, 1.0, AZURE_WITHIN, len(due)), AZURE_LONGEST)
    return _load(rng, name, kind, due, service)


def _pareto(rng: np.random.Generator, name: str, kind: Kind) -> Load:
    shape, low, high = 1.2, 0.6, 600.0
    rate = 32.0 / bounded_pareto_mean(shape, low, high)
    due = poisson(rng, _level(rate, rate), HORIZON)
    return _load(rng, name, kind, due, bounded_pareto(rng, shape, low, high, len(due)))


def _deterministic(rng: np.random.Generator, name: str, kind: Kind) -> Load:
    due = poisson(rng, _level(5.0, 10.0, 1200.0, 2400.0), HORIZON)
    return _load(rng, name, kind, due, np.full(len(due), 4.0))


def _longer(rng: np.random.Generator, name: str, kind: Kind) -> Load:
    """Draw jobs that take five times as long for a while: a downstream degraded, or a release was bad."""
    due = poisson(rng, _level(8.0, 8.0), HORIZON)
    factor = np.where((due > 1200) & (due < 2400), 5.0, 1.0)
    return _load(rng, name, kind, due, factor * lognormal(rng, 1.2, VARIATION, len(due)))


def _sine(t: Floats) -> Floats:
    return 16.0 + 13.0 * np.sin(2 * np.pi * t / 1200.0)


def _ramp(t: Floats) -> Floats:
    return np.interp(t, [600.0, 3000.0], [0.8, 7.2])


_SHAPES: dict[str, tuple[Kind, Callable[..., Load]]] = {
    "steady": (Kind.SMOOTH, partial(_rated, _level(10.0, 10.0))),
    "step up": (Kind.SMOOTH, partial(_rated, _level(4.0, 22.0, 1200.0), mean=2.0)),
    "step down": (Kind.SMOOTH, partial(_rated, _level(15.0, 3.0, 1200.0))),
    "ramp": (Kind.SMOOTH, partial(_rated, _ramp, mean=8.0)),
    "sine": (Kind.SMOOTH, partial(_rated, _sine, mean=2.0)),
    "fixed length": (Kind.SMOOTH, _deterministic),
    "long jobs": (Kind.SMOOTH, partial(_rated, _level(0.4, 1.2, 900.0, 2400.0), mean=40.0)),
    "longer jobs": (Kind.SMOOTH, _longer),
    "azure day": (Kind.HEAVY, _azure),
    "pareto": (Kind.HEAVY, _pareto),
    "spike": (Kind.BURST, partial(_rated, _level(4.0, 30.0, 1500.0, 1620.0))),
    "mmpp-2": (Kind.BURST, _bursts),
    "batch drops": (Kind.BURST, _batches),
    "scheduled batch": (Kind.BURST, _scheduled),
    "idle gaps": (Kind.IDLE, partial(_rated, _level(0.0, 10.0, *np.arange(30.0, 3600.0, 300.0)))),
    "retry storm": (Kind.FAULT, _retries),
    "worker kills": (Kind.FAULT, partial(_rated, _level(10.0, 10.0), kills=tuple(map(float, range(45, 3600, 90))))),
    "slow downstream": (
        Kind.FAULT,
        partial(_rated, _level(4.0, 9.0, 600.0, 1200.0, 1800.0, 2400.0, 3000.0, 3600.0), slowdown=Slowdown(36)),
    ),
    "overload": (Kind.OVERLOAD, partial(_rated, _level(8.0, 22.0, 1200.0, 1800.0), cap=12)),
    "sparse": (Kind.SPARSE, partial(_rated, _level(0.02, 0.02))),
}

NAMES = tuple(_SHAPES)


def workload(name: str, seed: int) -> Load:
    """Draw a workload. Raises KeyError when there is none of this name."""
    kind, shape = _SHAPES[name]
    return shape(_generator(name, seed), name, kind)
