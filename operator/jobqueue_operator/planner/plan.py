"""What should happen next, and why. A plan is carried out by a platform, printed, recorded and replayed."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - a recorded line is read by these annotations
from dataclasses import dataclass, field
from enum import StrEnum

from jobqueue_operator.planner.memory import CapacityMemory, ClassMemory

NAMED_MOST = 3
"""Workers named in a line; of others only how many there are."""


class Reason(StrEnum):
    """Stable words for why; a message beside each says it with its numbers."""

    # Why a class has this many workers
    DEMAND = "Demand"  # the need of its arrivals and backlog
    CATCHING_UP = "CatchingUp"  # more than the need, so that what waits does not become late
    SCALE_IN_WINDOW = "ScaleInWindow"  # fewer would do now; they stay until that has held for a while
    MINIMUM_REPLICAS = "MinimumReplicas"
    MAXIMUM_REPLICAS = "MaximumReplicas"
    SCHEDULED_MINIMUM = "ScheduledMinimum"
    DOWNSTREAM_CAPACITY = "DownstreamCapacity"  # its share of the downstream allows no more
    PINNED = "Pinned"
    PAUSED = "Paused"
    RESTORED = "Restored"  # no decision yet: what an earlier operator had stored
    IDLE = "Idle"
    IDLE_AFTER = "IdleAfter"  # idle, and kept until idleAfter is over
    HEAD_BLOCKED = "HeadBlocked"  # more workers cannot help what waits
    NOT_VISIBLE = "QueueNotVisible"
    FACTS_REFUSED = "FactsRefused"  # what was observed cannot be true
    FALLBACK = "Fallback"  # not visible for so long that the documented fallback holds
    REMOVED = "ClassRemoved"
    # Which worker goes
    IDLE_FIRST = "IdleFirst"
    LEAST_ELAPSED = "LeastElapsed"
    NOT_READY_FIRST = "NotReadyFirst"
    # Rollouts
    ROLLING = "RollingOut"
    WAITING_FOR_READY = "WaitingForReady"
    STALLED = "RolloutStalled"
    OLD_VERSION_QUEUED = "OldVersionQueued"  # only old workers understand some of what is queued
    # Limits of downstreams
    SPEC_LIMIT = "SpecLimit"
    SATURATED = "DownstreamSaturated"
    PROBING = "Probing"  # back up after a saturation
    MOVING = "MovingUnits"  # from one database to another: lowered here, not raised there yet


BLIND = frozenset({Reason.NOT_VISIBLE, Reason.FACTS_REFUSED, Reason.FALLBACK})
"""Reasons of decisions that were made without a sight of the queue: nothing may be stopped or replaced by them."""


class Condition(StrEnum):
    """Stable types of what is worth saying beside a decision."""

    TARGET_BELOW_START_DELAY = "TargetBelowStartDelay"
    HEAD_BLOCKED = "HeadBlocked"
    DOWNSTREAM_SATURATED = "DownstreamSaturated"
    METRICS_UNAVAILABLE = "MetricsUnavailable"
    AT_CAPACITY = "AtCapacity"  # the downstream's limit, not the queue, decides how late jobs are
    MINIMUM_NOT_MET = "MinimumNotMet"  # the downstream's limit leaves less than the minimum
    MEMORY_REFUSED = "MemoryRefused"  # a stored prior could not be read


@dataclass(frozen=True, slots=True)
class Remark:
    """A condition that holds, with its numbers."""

    condition: Condition
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The law's inputs as used and its terms, for one class at one tick. Seconds, jobs, workers.

    Named as in docs/scaling.md, which derives them.
    """

    target: float = 0.0
    deadline: float = 0.0
    """dl: the target less what a decision may come late by."""
    recovery: float = 0.0
    """R: time allowed for working off a backlog that is already late."""
    start_delay: float = 0.0
    slots: int = 1
    """c: jobs one worker runs at once."""
    service: float = 0.0
    """E[min(S, dl)]: mean length of an attempt, cut off at the deadline."""
    occupied: float = 0.0
    """s_b: seconds of a slot that each attempt took lately, at least; 0 while none waits or too few ended."""
    giants: float = 0.0
    """L: running attempts older than the deadline; each holds a slot."""
    rate: float = 0.0
    """Arrivals a second."""
    load: float = 0.0
    """Slots that the arrivals and the giants keep busy."""
    steady: int = 0
    """n_s: workers for the load."""
    lasting: int = 0
    """Workers for the arrivals and the giants alone: what the long scale-in window remembers."""
    catch_up: float = 0.0
    """x: further workers, counted from when they would be up, for the quantile that needs most."""
    floor: float = 0.0
    """y: workers that must be there for the backlog, whatever the start delay."""
    up: int = 0
    need: int = 0
    keep: int = 0
    """What the scale-in windows still keep."""
    window: float = 0.0
    """W: seconds that fewer workers must have been enough for, before some go."""
    useful: int = 0
    """Workers beyond which slots would be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Something that changed the number, in the order in which it was applied."""

    reason: Reason
    replicas: int
    """The number after it was applied."""
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    """How many workers a class gets."""

    replicas: int
    reason: Reason
    message: str
    terms: Terms | None = None
    """None where the law was not asked (blind, paused, pinned)."""
    bounds: tuple[Bound, ...] = ()
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class Victim:
    """A worker that is to be retired or stopped."""

    worker: str
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Kept:
    """Old workers that a rollout leaves for now, since perhaps nobody else understands what is queued."""

    workers: tuple[str, ...]
    beside: bool
    """Whether they fill the pool's `replicas`, so that no new worker would have a place: then they do not count."""
    reason: Reason
    """`OldVersionQueued`; `WaitingForReady` until a new worker has said what it understands."""
    message: str


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """The next step from an old revision to the wanted one. `replace` is None while nothing may be stopped."""

    replace: Victim | None
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Pool:
    """One class's workers as they should be.

    Scale-in has two steps, so that no busy worker is stopped by it: `retire` fences workers in the queue, `stop` ends
    those that are fenced and hold nothing. `take_back` names retired workers that are needed again.
    """

    class_: str
    """The pool's key."""
    revision: str
    decision: Decision
    room: int | None = None
    """Workers beside those that leave for which there are units now; None: for all that are decided. Less than those
    while workers that leave, of this pool or another, still hold their units."""
    retire: tuple[Victim, ...] = ()
    take_back: tuple[str, ...] = ()
    stop: tuple[Victim, ...] = ()
    rollout: RolloutStep | None = None
    kept: Kept | None = None
    surge: bool = False
    """Whether a rollout may start a worker beside the one that it replaces: one more than `replicas`. Where there is a
    downstream it is only said while one is under way."""
    memory: ClassMemory = field(default_factory=ClassMemory)

    @property
    def replicas(self) -> int:
        """Workers that should run now, beside those that leave."""
        return self.decision.replicas if self.room is None else min(self.decision.replicas, self.room)

    @property
    def why(self) -> str:
        """What is being done and why, as one line."""
        parts = [self.decision.message]
        for doing, names in (
            ("retiring", [v.worker for v in self.retire]),
            ("taking back", list(self.take_back)),
            ("draining", [v.worker for v in self.stop]),
        ):
            if names:
                more = f" and {len(names) - NAMED_MOST} more" if len(names) > NAMED_MOST else ""
                parts.append(f"{doing} {', '.join(names[:NAMED_MOST])}{more}")
        if self.rollout is not None:
            parts.append(self.rollout.message)
        return "; ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one pool gets of a downstream. Units."""

    pool: str
    minimum: int
    """Reserved for it, in whole workers."""
    asked: int
    """What its wanted workers would be charged."""
    allocated: int
    replicas: int
    """Workers that fit into what is allocated."""
    held_back_by: tuple[str, ...] = ()
    """Pools that have what this one asks for; empty when it gets all, or when only the limit is short."""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """One downstream's units and who gets them."""

    downstream: str
    ceiling: int
    """What the manifest allows: units, or connections, less the reserve."""
    limit: int
    """What is given out now: the ceiling, or less while the downstream is saturated."""
    in_use: int | None
    """Units in flight; None when no database could be read."""
    reason: Reason
    message: str
    shares: tuple[Share, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    """By database: the limit that its claims are to hold to from now on. Their sum is never above `limit`, save for
    units still in flight where a limit was just lowered."""
    remarks: tuple[Remark, ...] = ()
    removed: int = 0
    """Units of workers whose class is asked for no more: nobody gets them before those are gone."""
    memory: CapacityMemory = field(default_factory=CapacityMemory)


@dataclass(frozen=True, slots=True)
class Plan:
    """All pools of one tick, in the order they were asked for, then those that are to go; and all downstreams."""

    pools: tuple[Pool, ...]
    downstreams: tuple[Allocation, ...] = ()

    def pool(self, class_: str) -> Pool | None:
        """Return the pool of a class, or None."""
        return next((p for p in self.pools if p.class_ == class_), None)

    def downstream(self, name: str) -> Allocation | None:
        """Return the allocation of a downstream, or None."""
        return next((a for a in self.downstreams if a.downstream == name), None)
