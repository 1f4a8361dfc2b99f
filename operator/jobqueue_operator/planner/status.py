"""What a manifest's status says, from what one round knew. Pure: rebuilt each time, never read back but for two things.

Those are the moment of a condition's last transition, and whether a condition that does not hold was ever shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from jobqueue_operator.planner import plan
from jobqueue_operator.planner.facts import Phase
from jobqueue_operator.planner.plan import BLIND, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jobqueue_operator.planner.facts import ClassFacts, WorkerFacts
    from jobqueue_operator.planner.plan import Allocation, Pool

MESSAGE_MOST = 2_000
"""Characters of a message."""
ALLOCATIONS_MOST, RIVALS_MOST = 1_000, 50
"""Shares of a downstream, and names in one of them, that a status can hold."""
AGE_MOST = 1e12
"""Seconds."""
PASSING = frozenset({
    "ClassHasJobs", "RolloutStalled", "RolloutHeld", "HeadBlocked", "TargetBelowStartDelay", "DownstreamSaturated",
    "DrainShorterThanTimeout", "Conflicting", "MemoryRefused", "Saturated",
})  # fmt: skip
"""Conditions that are shown while they hold, and once they did. Others that a status has are somebody else's."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition: does it hold, and why."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str

    @property
    def holds(self) -> bool:
        """Whether it does for certain."""
        return self.status == "True"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassState:
    """One class as this round left it."""

    name: str
    pool: Pool | None
    """None: no decision was made, so nothing was changed."""
    facts: ClassFacts | None
    workers: Sequence[WorkerFacts] = ()
    refused: str = ""
    """What the API server would not take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """One JobQueue as this round left it."""

    generation: int
    accepted: Condition
    database: Condition
    classes: Sequence[ClassState] = ()
    others: Sequence[Condition] = ()
    """Conditions that hold and are shown only then: ClassHasJobs, Conflicting, DrainShorterThanTimeout."""


def queue_status(state: QueueState, before: Mapping[str, Any], *, now: str) -> dict[str, Any]:
    """Return a JobQueue's status. `before`: the one that it has; `now`: RFC 3339, for transitions."""
    classes = [_class(each) for each in state.classes]
    seen = [each.facts for each in state.classes if each.facts is not None]
    conditions = [_ready(state), state.accepted, state.database, *_always(state)]
    found: dict[str, Any] = {
        "observedGeneration": state.generation,
        "conditions": merge(conditions, [*_remarks(state), *state.others], before, state.generation, now=now),
        "reason": _reason(state),
        "replicas": sum(len(_alive(each.workers)) for each in state.classes),
        "classes": classes,
    }
    if seen or not state.classes:
        found |= {
            "readyJobs": sum(_count(each.ready) for each in seen),
            "inFlightJobs": sum(_count(each.in_flight) for each in seen),
            "deadJobs": sum(_count(each.dead) for each in seen),
            "oldestMessageAge": age(max((max(0.0, each.oldest_age) for each in seen), default=0.0)),
        }
    return found


def capacity_status(
    allocation: Allocation | None, problem: Condition | None, before: Mapping[str, Any], *, generation: int, now: str
) -> dict[str, Any]:
    """Return a DownstreamCapacity's status: its units, and who has how many. Shares are named namespace/queue/class."""
    if allocation is None:
        ready = problem or Condition("Ready", "True", "Unused", "no class of a JobQueue refers to it")
        return {
            "observedGeneration": generation,
            "conditions": merge([ready], [], before, generation, now=now),
            "allocations": [],
        }
    saturated = [
        Condition("Saturated", "True", str(remark.condition), remark.message)
        for remark in allocation.remarks
        if remark.condition is plan.Condition.DOWNSTREAM_SATURATED
    ]
    ready = problem or Condition("Ready", "True", str(allocation.reason), allocation.message)
    found: dict[str, Any] = {
        "observedGeneration": generation,
        "conditions": merge([ready], saturated, before, generation, now=now),
        "units": _count(allocation.ceiling),
        "limit": _count(allocation.limit),
        "allocations": [
            {
                "jobQueue": share.pool.rpartition("/")[0],
                "class": share.pool.rpartition("/")[2],
                "allocated": _count(share.allocated),
                "asked": _count(share.asked),
                "heldBackBy": list(share.held_back_by[:RIVALS_MOST]),
            }
            for share in allocation.shares[:ALLOCATIONS_MOST]
        ],
    }
    if allocation.in_use is not None:
        found["inUse"] = _count(allocation.in_use)
    return found


def merge(
    always: Iterable[Condition],
    while_they_hold: Iterable[Condition],
    before: Mapping[str, Any],
    generation: int,
    *,
    now: str,
) -> list[dict[str, Any]]:
    """Return conditions as a status has them; those that held once and hold no more are shown as False.

    What holds for several reasons is one condition, with the first one's reason and all messages.
    """
    old = {c["type"]: c for c in before.get("conditions") or () if isinstance(c, dict) and "type" in c}
    found = {c.type: c for c in always}
    for each in while_they_hold:
        known = found.get(each.type)
        found[each.type] = each if known is None else replace(known, message=f"{known.message}; {each.message}")
    for type_ in sorted((old.keys() & PASSING) - found.keys()):
        found[type_] = Condition(type_, "False", "NotSo", "")
    return [_condition(each, old.get(each.type), generation, now) for each in found.values()]


def same(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether two statuses differ only in numbers that move all the time, so that writing the new one can wait.

    The first dead job and the first and last worker are news: rare, and what somebody who looks may be waiting for.
    """
    return bool(_still(before) == _still(after))


def age(seconds: float) -> str:
    """Return an age as a column shows it: 0s, 42s, 12m, 3h, 2d. What is no age is none."""
    seconds = min(max(0.0, seconds), AGE_MOST)
    for unit, size, least in (("d", 86_400, 172_800), ("h", 3_600, 7_200), ("m", 60, 120)):
        if seconds >= least:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def _still(status: Mapping[str, Any]) -> Any:
    conditions = {
        c.get("type"): {k: v for k, v in c.items() if k not in {"message", "lastTransitionTime"}}
        for c in status.get("conditions") or ()
    }
    classes = [(c.get("name"), c.get("desiredReplicas"), c.get("reason")) for c in status.get("classes") or ()]
    shares = [(a.get("jobQueue"), a.get("class"), a.get("allocated")) for a in status.get("allocations") or ()]
    some = bool(status.get("replicas")), bool(status.get("deadJobs"))
    return status.get("observedGeneration"), status.get("limit"), conditions, classes, shares, some


def _condition(found: Condition, old: Mapping[str, Any] | None, generation: int, now: str) -> dict[str, Any]:
    since = now if old is None or old.get("status") != found.status else old.get("lastTransitionTime") or now
    return {
        "type": found.type,
        "status": found.status,
        "reason": found.reason,
        "message": found.message[:MESSAGE_MOST],
        "observedGeneration": generation,
        "lastTransitionTime": since,
    }


def _class(state: ClassState) -> dict[str, Any]:
    found: dict[str, Any] = {"name": state.name, "replicas": len(_alive(state.workers))}
    if state.pool is not None:
        found |= {
            "desiredReplicas": _count(state.pool.decision.replicas),
            "reason": str(state.pool.decision.reason),
            "message": state.pool.why[:MESSAGE_MOST],
        }
    if state.facts is not None:
        found |= {
            "readyJobs": _count(state.facts.ready),
            "inFlightJobs": _count(state.facts.in_flight),
            "scheduledJobs": _count(state.facts.scheduled),
            "deadJobs": _count(state.facts.dead),
            "oldestMessageAge": age(state.facts.oldest_age),
        }
    return found


def _count(number: float) -> int:
    """Return what a status can hold: an estimate may be a fraction, and what cannot be true would be refused."""
    return max(int(number), 0)


def _alive(workers: Sequence[WorkerFacts]) -> list[WorkerFacts]:
    return [worker for worker in workers if worker.phase is not Phase.DRAINING]


def _reason(state: QueueState) -> str:
    """Return the reason of the class that is worst off: the oldest beyond its target, else the largest."""
    decided = [each for each in state.classes if each.pool is not None]
    if not decided:
        return state.accepted.reason if not state.accepted.holds else state.database.reason

    def badness(each: ClassState) -> tuple[float, int]:
        assert each.pool is not None  # noqa: S101 - for the type checker
        terms = each.pool.decision.terms
        late = each.facts.oldest_age / terms.target if each.facts is not None and terms and terms.target else 0.0
        return late, each.pool.decision.replicas

    worst = max(decided, key=badness)
    assert worst.pool is not None  # noqa: S101 - for the type checker
    return str(worst.pool.decision.reason)


def _ready(state: QueueState) -> Condition:
    if not state.accepted.holds:
        return Condition("Ready", "False", state.accepted.reason, f"nothing is changed: {state.accepted.message}")
    if not state.database.holds:
        return Condition("Ready", state.database.status, state.database.reason, state.database.message)
    refused = [f"class {each.name}: {each.refused}" for each in state.classes if each.refused]
    if refused:
        return Condition("Ready", "False", "ApplyRefused", "; ".join(refused))
    failing = [each for each in state.classes if _failing(each)]
    if failing:
        said = "; ".join(f"class {each.name}: {_failing(each)}" for each in failing)
        return Condition("Ready", "False", "WorkersFailing", said)
    return Condition("Ready", "True", "AsAsked", "every class has the workers that were decided, or is getting them")


def _failing(state: ClassState) -> str:
    """Return why no worker of a class comes up; empty while one is up, or none was seen to fail."""
    workers = _alive(state.workers)
    bad = [worker for worker in workers if worker.failing]
    # One that starts beside those that fail does not make it well: it may be the next that fails.
    if not bad or any(worker.phase in {Phase.READY, Phase.RETIRED} for worker in workers):
        return ""
    return f"{bad[0].name} does not come up: {bad[0].last_error}"


def _always(state: QueueState) -> list[Condition]:
    blind = [each for each in state.classes if each.pool is None or each.pool.decision.reason in BLIND]
    if not state.classes:
        metrics = Condition("MetricsAvailable", "Unknown", "NoDecision", "no class was looked at")
    elif blind:
        said = "; ".join(f"class {each.name}: {each.pool.decision.message}" for each in blind if each.pool is not None)
        first = next((each.pool.decision.reason for each in blind if each.pool is not None), Reason.NOT_VISIBLE)
        metrics = Condition("MetricsAvailable", "False", str(first), said or state.database.message)
    else:
        metrics = Condition("MetricsAvailable", "True", "Observed", "")
    return [metrics, _capacity(state), _progress(state)]


def _capacity(state: QueueState) -> Condition:
    short = {plan.Condition.AT_CAPACITY, plan.Condition.MINIMUM_NOT_MET}
    found = [r for each in state.classes if each.pool for r in each.pool.decision.remarks if r.condition in short]
    if found:
        return Condition(
            "CapacityAvailable", "False", str(found[0].condition), "; ".join(remark.message for remark in found)
        )
    return Condition("CapacityAvailable", "True", "Enough", "")


def _progress(state: QueueState) -> Condition:
    steps = [(each, each.pool.rollout) for each in state.classes if each.pool is not None and each.pool.rollout]
    moving = [f"class {each.name}: {step.message}" for each, step in steps if step.reason is not Reason.STALLED]
    if moving:
        return Condition("Progressing", "True", str(Reason.ROLLING), "; ".join(moving))
    return Condition("Progressing", "False", "UpToDate" if not steps else str(Reason.STALLED), "")


def _remarks(state: QueueState) -> list[Condition]:
    """Return what is worth saying beside the decisions, one condition a type."""
    own = {
        plan.Condition.HEAD_BLOCKED,
        plan.Condition.TARGET_BELOW_START_DELAY,
        plan.Condition.DOWNSTREAM_SATURATED,
        plan.Condition.MEMORY_REFUSED,
    }
    said: dict[str, list[str]] = {}
    for each in state.classes:
        if each.pool is None:
            continue
        for remark in each.pool.decision.remarks:
            if remark.condition in own:
                said.setdefault(str(remark.condition), []).append(remark.message)
        step = each.pool.rollout
        if step is not None and step.reason is Reason.STALLED:
            said.setdefault("RolloutStalled", []).append(f"class {each.name}: {step.message}")
    found = [Condition(type_, "True", type_, "; ".join(messages)) for type_, messages in said.items()]
    kept = [(each, each.pool.kept) for each in state.classes if each.pool is not None and each.pool.kept is not None]
    held = [f"class {each.name}: {k.message}" for each, k in kept if k.reason is Reason.OLD_VERSION_QUEUED]
    if held:
        found.append(Condition("RolloutHeld", "True", str(Reason.OLD_VERSION_QUEUED), "; ".join(held)))
    return found
