"""The planner's one entry: everything observed and asked for in, one plan out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobqueue_operator.planner import demand, rollout, victims
from jobqueue_operator.planner.plan import Decision, Plan, Pool, Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobqueue_operator.planner.facts import Facts
    from jobqueue_operator.resources import ClassSpec


def plan(
    classes: Sequence[ClassSpec],
    facts: Facts,
    previous: Plan | None,
    *,
    revisions: Mapping[str, str],
    now: float,
) -> Plan:
    """Decide for every class, and for workers whose class is no longer asked for.

    `revisions` says, per class, what its workers should be made from (an opaque word: other word, other worker).
    `previous` is the plan of the last tick; `now` is in seconds on any steady clock.
    """
    pools = [_pool(spec, facts, previous, revisions[spec.name], now) for spec in classes]
    wanted = {spec.name for spec in classes}
    for class_ in sorted({w.class_ for w in facts.workers} - wanted):
        gone = tuple(
            victims.victim(w, Reason.REMOVED) for w in victims.rank(w for w in facts.workers if w.class_ == class_)
        )
        decision = Decision(0, Reason.REMOVED, "the class is no longer in the manifest")
        pools.append(Pool(class_, "", decision, gone))
    return Plan(tuple(pools))


def _pool(spec: ClassSpec, facts: Facts, previous: Plan | None, revision: str, now: float) -> Pool:
    before = previous.pool(spec.name) if previous is not None else None
    decision = demand.decide(spec, facts, before.decision if before is not None else None, now=now)
    workers = [w for w in facts.workers if w.class_ == spec.name]
    if not facts.visible:
        # Who is idle or ready would be a guess: nobody is stopped.
        return Pool(spec.name, revision, decision)
    going = victims.surplus(workers, decision.replicas, revision)
    step = None if going else rollout.step(workers, revision, decision.replicas)
    return Pool(spec.name, revision, decision, going, step)
