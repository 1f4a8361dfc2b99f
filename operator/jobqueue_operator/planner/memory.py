"""What the planner remembers from one tick to the next. It travels in the plan, so that a recorded tick replays.

A part of it (the priors) is stored in the queue's database too, so that a restarted operator does not start blind.
Times are seconds on the clock that `plan` is given.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Past:
    """What a tick asked for: workers for the load alone, and workers for everything that waited then."""

    at: float
    steady: int
    peak: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassMemory:
    """One class's memory."""

    busy_at: float | None = None
    """When the class last had work; None when it has had none."""
    service: float | None = None
    """The last tick's mean length of an attempt, cut off at the deadline."""
    prior: float | None = None
    """A slow mean of `service`: what a cohort of few attempts is drawn towards. Stored."""
    start_delay: float | None = None
    """The last known start delay. Stored."""
    delays: tuple[tuple[str, float], ...] = ()
    """Start delays of the workers seen last: name and seconds, oldest first."""
    past: tuple[Past, ...] = ()
    """Oldest first; an entry that a later one exceeds in everything is left out."""
    window: float | None = None
    window_at: float | None = None
    """When the window was last changed."""
    down_at: float | None = None
    """When fewer workers were last asked for."""
    stuck: float = 0.0
    """Seconds for which slots were idle while jobs that could run grew older."""
    oldest_age: float = 0.0
    blind_since: float | None = None
    """Since when the class could not be seen."""


@dataclass(frozen=True, slots=True)
class Best:
    """What a downstream got done at best, in units a second, and with how many units in flight."""

    done: float
    in_flight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityMemory:
    """One downstream's memory."""

    given: tuple[tuple[str, int], ...] = ()
    """Workers that each pool was given last."""
    proposed: tuple[tuple[str, int], ...] = ()
    """Workers that the division alone would have given."""
    charged: tuple[tuple[str, int], ...] = ()
    """By database: the most units that may be in flight there until it is seen again."""
    working: int | None = None
    """The adaptive limit; None while it is not adaptive."""
    best: Best | None = None
    grown_at: float | None = None
    """Since when a sign of saturation is seen."""
    sign: str = ""
    """What was seen when the limit was last lowered."""
    lowered_at: float | None = None
    """When the limit was lowered, while what that did is not known yet."""
    lowered_from: int = 0
    done_before: float = 0.0
    """What it got done then, by Little's law: units in flight over an attempt's length; 0 when that is no matter."""
