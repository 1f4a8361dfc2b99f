"""Moments at which jobs become due, drawn from a rate that changes with time, and lengths of attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.autoscaling.load import Floats

RESOLUTION = 1.0
"""Seconds over which a rate is taken for constant."""


def poisson(rng: np.random.Generator, rate: Callable[[Floats], Floats], horizon: float) -> Floats:
    """Draw a Poisson process whose rate (a second) is a function of time; ascending."""
    edges = np.arange(0.0, horizon, RESOLUTION)
    counts = rng.poisson(np.maximum(rate(edges + RESOLUTION / 2), 0.0) * RESOLUTION)
    return np.sort(np.repeat(edges, counts) + rng.random(int(counts.sum())) * RESOLUTION)


def two_states(
    rng: np.random.Generator, rates: tuple[float, float], stays: tuple[float, float], horizon: float
) -> Callable[[Floats], Floats]:
    """Draw the rate of a Markov-modulated Poisson process of two states with exponential stays (MMPP-2)."""
    moments, state, at = [0.0], 0, 0.0
    while at < horizon:
        at += rng.exponential(stays[state])
        moments.append(at)
        state = 1 - state
    turns = np.array(moments)
    return lambda t: np.where(np.searchsorted(turns, t, side="right") % 2 == 1, rates[0], rates[1])


def lognormal(rng: np.random.Generator, mean: float, variation: float, size: int) -> Floats:
    """Draw lengths with this mean and coefficient of variation."""
    variance = np.log1p(variation**2)
    return rng.lognormal(np.log(mean) - variance / 2, np.sqrt(variance), size)


def bounded_pareto(rng: np.random.Generator, shape: float, low: float, high: float, size: int) -> Floats:
    """Draw lengths between `low` and `high` whose tail falls as a power, by inverting the distribution function."""
    u = rng.random(size)
    return np.asarray(low / (1 - u * (1 - (low / high) ** shape)) ** (1 / shape))


def bounded_pareto_mean(shape: float, low: float, high: float) -> float:
    """Return the mean of those, for a shape other than 1."""
    head = low**shape / (1 - (low / high) ** shape)
    return float(head * shape / (shape - 1) * (low ** (1 - shape) - high ** (1 - shape)))
