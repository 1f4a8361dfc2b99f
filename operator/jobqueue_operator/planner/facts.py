"""What is known when a plan is made. Ages and spans in seconds; counts in jobs, workers or units."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Phase(StrEnum):
    """Where a worker is in its life."""

    STARTING = "Starting"
    READY = "Ready"
    DRAINING = "Draining"
    BACKOFF = "BackOff"  # it died, and waits to be started again


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFacts:
    """One class as the queue sees it."""

    ready: int = 0
    blocked: int = 0
    """Ready jobs that more workers cannot help: no one understands them, or a key or tenant is at its limit."""
    unsupported: int = 0
    """Those of the blocked that no registered worker understands."""
    scheduled: int = 0
    """Scheduled or retrying, not due yet: none of these is late."""
    in_flight: int = 0
    expired: int = 0
    dead: int = 0
    oldest_age: float = 0.0
    paused: bool = False


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
    restarts: int = 0
    last_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DownstreamFacts:
    """One downstream as the queue sees it."""

    limit: int
    in_use: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that one tick observed."""

    visible: bool = True
    """Whether the queue could be read; when it could not, classes and downstreams are empty."""
    classes: Mapping[str, ClassFacts] = field(default_factory=dict)
    downstreams: Mapping[str, DownstreamFacts] = field(default_factory=dict)
    workers: tuple[WorkerFacts, ...] = ()
