"""Every policy by name, with the parameters of its documentation and those that the oracle may choose from."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

from bench.autoscaling.policies.fixed import AlwaysAtCap
from bench.autoscaling.policies.hpa import Behavior, Hpa, by_age, by_backlog, by_depth
from bench.autoscaling.policies.keda import Keda
from bench.autoscaling.policies.knative import Decider, Kpa
from bench.autoscaling.policies.ours import Planner
from bench.autoscaling.policies.policy import Deployment
from bench.autoscaling.policies.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from bench.autoscaling.load import Load
    from bench.autoscaling.policies.policy import Policy

Values = dict[str, float]

OURS, CALM, AT_CAP = "planner", "planner, calm", "always at cap"


@dataclass(frozen=True, slots=True)
class Family:
    """One policy with its defaults, and the values that the oracle tries for each parameter."""

    make: Callable[[Load, Mapping[str, float]], Policy]
    default: Values = field(default_factory=dict)
    tried: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def grid(self) -> Iterator[Values]:
        """Yield every combination, each with a grace period that kills nobody."""
        names = list(self.tried)
        for values in product(*self.tried.values()):
            yield {**self.default, **dict(zip(names, values, strict=True)), "grace": LONG_GRACE}


LONG_GRACE = 3600.0
_DEPTHS = (0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 4.0, 8.0, 12.0, 16.0)
_WINDOWS = (0.0, 60.0, 300.0)


def _hpa(load: Load, v: Mapping[str, float], kind: str) -> Hpa:
    behavior = Behavior(1, load.cap, v["down"])
    desire = {
        "depth": lambda: by_depth(v["per slot"] * load.slots),
        "backlog": lambda: by_backlog(v["per slot"] * load.slots),
        "age": lambda: by_age(v["part"] * load.target),
    }[kind]()
    return Hpa(desire, behavior, Deployment(v["grace"]))


def _keda(load: Load, v: Mapping[str, float]) -> Keda:
    behavior = Behavior(1, load.cap, v["down"])
    return Keda(v["per slot"] * load.slots, behavior, v["cooldown"], Deployment(v["grace"]))


def _kpa(load: Load, v: Mapping[str, float]) -> Kpa:
    decider = Decider(v["utilisation"] * load.slots, v["stable"], v["stable"] / 10, v["panic"])
    return Kpa(decider, load.cap, Deployment(v["grace"]))


def _steps(load: Load, v: Mapping[str, float]) -> Steps:
    return Steps(load.target, load.cap, v["threshold"], v["width"], v["alarm"], Deployment(v["grace"]))


OTHERS: dict[str, Family] = {
    "HPA, depth": Family(
        lambda load, v: _hpa(load, v, "depth"),
        {"per slot": 1.0, "down": 300.0, "grace": 30.0},
        {"per slot": _DEPTHS, "down": _WINDOWS},
    ),
    "HPA, backlog": Family(
        lambda load, v: _hpa(load, v, "backlog"),
        {"per slot": 1.0, "down": 300.0, "grace": 30.0},
        {"per slot": (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 12.0, 16.0), "down": _WINDOWS},
    ),
    "HPA, age": Family(
        lambda load, v: _hpa(load, v, "age"),
        {"part": 0.5, "down": 300.0, "grace": 30.0},
        {"part": (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0), "down": _WINDOWS},
    ),
    "KEDA": Family(
        _keda,
        {"per slot": 1.0, "down": 300.0, "cooldown": 300.0, "grace": 30.0},
        {"per slot": _DEPTHS[3:], "down": _WINDOWS, "cooldown": (60.0, 300.0)},
    ),
    "KPA": Family(
        _kpa,
        {"utilisation": 0.7, "stable": 60.0, "panic": 2.0, "grace": 30.0},
        {"utilisation": (0.5, 0.7, 0.85, 1.0, 1.3), "stable": (30.0, 60.0, 120.0), "panic": (2.0, 5.0)},
    ),
    "steps": Family(
        _steps,
        {"threshold": 50.0, "width": 10.0, "alarm": 60.0, "grace": 30.0},
        {"threshold": (20.0, 35.0, 50.0, 70.0), "width": (5.0, 10.0), "alarm": (15.0, 60.0)},
    ),
}

FAMILIES: dict[str, Family] = {
    OURS: Family(lambda load, _: Planner(load)),
    CALM: Family(lambda load, _: Planner(load, calm=True)),
    AT_CAP: Family(lambda load, _: AlwaysAtCap(load)),
    **OTHERS,
}
