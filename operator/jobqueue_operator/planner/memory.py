"""What the planner remembers from one tick to the next. It travels in the plan, so that a recorded tick replays.

A part of it (the priors) is stored in the queue's database too, so that a restarted operator does not start blind.
Times are seconds on the clock that `plan` is given.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassMemory:
    """One class's memory."""

    busy_at: float | None = None
    """When the class last had work; None when it has had none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityMemory:
    """One downstream's memory."""
