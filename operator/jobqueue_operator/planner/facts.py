"""What is known when a plan is made. Ages and spans in seconds; counts in jobs, workers or units.

A count may be an estimate, hence a float. What was not observed keeps its default; what cannot be true (a negative age,
a number that is none) is refused by the planner for that class, which then holds what it has.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - a recorded line is read by these annotations
from dataclasses import dataclass, field
from enum import StrEnum


class Phase(StrEnum):
    """Where a worker is in its life."""

    STARTING = "Starting"
    READY = "Ready"
    RETIRED = "Retired"  # fenced in the queue: finishes what it holds, claims nothing; can be taken back
    DRAINING = "Draining"  # being stopped: cannot be taken back
    BACKOFF = "BackOff"  # it died, and waits to be started again


@dataclass(frozen=True, slots=True)
class Span:
    """Attempts of about the same length: each at most `longest` seconds, `seconds` in all."""

    longest: float
    count: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """The lengths of one class's attempts, sorted by `longest`.

    `finished`: those that were started in the last `window` seconds and have ended with an outcome of their own (not
    released or snoozed). The window is 30 s, or as long as it takes to hold 500 starts, bounded by the observer.
    `running`: every live attempt, by the time since its start; those younger than `window` are the cohort's rest.
    """

    window: float = 30.0
    finished: tuple[Span, ...] = ()
    running: tuple[Span, ...] = ()
    failed: float = 0.0
    """Of the finished ones, those that failed (retried or dead)."""
    lately: tuple[float, float] = (0.0, 0.0)
    """Attempts that ended in the last two ticks, whenever started: how many, and their seconds together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Jobs that became due, by when: enqueued for now, or scheduled and retried ones whose time came.

    `last` and `before` are counts over the last tick and the one before it, each `tick` seconds long.
    """

    tick: float = 5.0
    last: float = 0.0
    before: float = 0.0
    in_20s: float = 0.0
    in_60s: float = 0.0


@dataclass(frozen=True, slots=True)
class QueuedVersion:
    """A kind and version of which jobs are queued (due, scheduled or in flight) and that some workers lack."""

    kind: str
    version: int
    jobs: int

    @property
    def name(self) -> str:
        """What workers call it."""
        return f"{self.kind}@{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFacts:
    """One class as the queue sees it."""

    ready: int = 0
    blocked: int = 0
    """Ready jobs that more workers cannot help: no one understands them, or a key or tenant is at its limit."""
    unsupported: int = 0
    """Those of the blocked that no registered worker understands; while there is none, that the last one did not."""
    blocked_key: int = 0
    blocked_tenant: int = 0
    ages: tuple[float, ...] = ()
    """Ages of the ready jobs at their eight quantiles 0, 1/8 … 7/8, oldest first; empty when none is ready."""
    oldest_age: float = 0.0
    scheduled: int = 0
    """Scheduled or retrying, not due yet: none of these is late."""
    due_soon: tuple[tuple[float, int], ...] = ()
    """Of the scheduled, how many become due within so many seconds: (horizon, count), cumulative, ascending."""
    in_flight: int = 0
    expired: int = 0
    dead: int = 0
    paused: bool = False
    arrivals: Arrivals = Arrivals()
    attempts: Attempts = Attempts()
    estimated: bool = False
    """Whether counts and ages come from a sample."""
    versions: tuple[QueuedVersion, ...] = ()
    """What is queued and only some of the workers understand; in the middle of a rollout there may be such."""
    downstream: str | None = None
    charge: int = 0
    """Units of it that one worker is charged, by what the queue was told of the class last: for one that is asked for
    no more, and whose manifest is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """One worker as the platform sees it, with what the queue knows of it."""

    name: str
    class_: str
    phase: Phase
    revision: str
    age: float = 0.0
    busy: int = 0
    """Jobs it holds."""
    elapsed: float = 0.0
    """Seconds of work in the jobs it holds, together."""
    slots: int | None = None
    """Jobs it can run at once; None: what the manifest says now."""
    admitted: bool = True
    """False while it waits for units of its downstream, which starting more workers would not help."""
    started_in: float | None = None
    """Seconds from its creation until it could claim; None when not known, or when it waited for units."""
    restarts: int = 0
    last_error: str = ""
    silent_for: float | None = None
    """Seconds since its last sign of life in the queue; None for one that is not registered."""
    lacks: tuple[str, ...] = ()
    """Names of the class's `versions` that it does not understand."""

    @property
    def failing(self) -> bool:
        """Whether it does not come up: it waits to be started again, or was, and is not ready since."""
        return self.phase is Phase.BACKOFF or (self.phase is Phase.STARTING and bool(self.last_error))


@dataclass(frozen=True, slots=True, kw_only=True)
class DownstreamFacts:
    """One downstream as the queue of one database sees it."""

    limit: int
    in_use: int = 0
    """Units of leases (expired ones too) and of admitted workers."""
    database: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that one tick observed."""

    visible: bool = True
    """Whether the queue could be read; when it could not, classes and downstreams are empty."""
    classes: Mapping[str, ClassFacts] = field(default_factory=dict)
    """By pool key. A class that is missing was not seen: its pool holds what it has."""
    downstreams: Mapping[str, tuple[DownstreamFacts, ...]] = field(default_factory=dict)
    """By the downstream's name: one entry for each database whose queue knows it."""
    workers: tuple[WorkerFacts, ...] = ()
    told: Mapping[str, int] = field(default_factory=dict)
    """By pool key: workers that a platform was told to keep, where it makes them by itself: some may yet come."""
    connections: Mapping[str, int] = field(default_factory=dict)
    """By database: connections that its server grants to ordinary users, max_connections less what it reserves."""
