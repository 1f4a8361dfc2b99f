"""Small workloads written out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
from bench.autoscaling.engine import Engine
from bench.autoscaling.load import Kind, Load, StartDelay


def load(due: list[float], service: list[float] | float, **more: Any) -> Load:
    lengths = np.full(len(due), service) if isinstance(service, float) else np.array(service)
    settings: dict[str, Any] = {"slots": 1, "cap": 10, "first": 1, "target": 10.0, "horizon": 100.0}
    return Load(name="by hand", kind=Kind.SMOOTH, due=np.array(due), service=lengths, **{**settings, **more})


def engine(due: list[float], service: list[float] | float, delay: float = 5.0, **more: Any) -> Engine:
    return Engine(load(due, service, **more), StartDelay(delay))
