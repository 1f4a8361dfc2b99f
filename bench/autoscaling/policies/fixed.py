"""A fleet that never changes."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from bench.autoscaling.policies.policy import Deployment

if TYPE_CHECKING:
    from bench.autoscaling.engine import Engine
    from bench.autoscaling.load import Load


@dataclass(slots=True)
class AlwaysAtCap:
    """As many pods as the downstream allows, always: what no policy can be less late than."""

    load: Load
    period: float = 15.0

    def act(self, engine: Engine) -> None:
        """Keep them."""
        Deployment().scale(engine, self.load.cap)

    def woken_after(self, engine: Engine) -> float:  # noqa: ARG002 - what a policy is asked
        """Never: there is no empty fleet."""
        return inf
