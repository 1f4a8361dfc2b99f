"""Which old workers a rollout leaves, because jobs are queued that perhaps no new worker understands. Pure.

What new workers understand is known when the first one is up; until then one old worker of each revision stays. After
that those stay whom a queued kind and version needs, one for each, until it is worked off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobqueue_operator.planner.facts import Phase
from jobqueue_operator.planner.plan import NAMED_MOST, Kept, Reason
from jobqueue_operator.planner.victims import LEAVING, rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobqueue_operator.planner.facts import ClassFacts, QueuedVersion, WorkerFacts


COMING_UP = 120.0
"""Seconds for which an old worker that is not up yet may be one that understands what is queued."""


def kept(
    workers: Sequence[WorkerFacts],
    revision: str,
    replicas: int,
    seen: ClassFacts | None,
    before: Kept | None = None,
) -> Kept | None:
    """Return who stays of one class's workers, or None when every old one may go.

    `replicas` are decided for the class; `before` is the last tick's answer.
    """
    stay = [w for w in rank(workers) if w.phase not in LEAVING]
    old = [w for w in stay if w.revision != revision]
    new = [w for w in stay if w.revision == revision]
    if not old or seen is None or not (seen.ready or seen.scheduled or seen.in_flight):
        return None
    if not any(w.phase is Phase.READY for w in new):
        found = _while_unknown(old, replicas)
        stuck = any(not w.admitted for w in new) and not any(w.phase in LEAVING for w in workers)
        # Where the downstream has no room for one more, each would wait for the other for ever.
        return None if found is not None and found.beside and stuck else found
    able = [w for w in old if w.phase is Phase.READY]
    if not able and before is not None and before.reason is Reason.OLD_VERSION_QUEUED:
        # It is being started again, and will understand what it did.
        return Kept((old[-1].name,), replicas <= 1, before.reason, before.message)
    if not able:
        # Started again while no operator looked, perhaps.
        return _while_unknown([w for w in old if w.age < COMING_UP], replicas)
    return _while_queued(able, [w for w in new if w.phase is Phase.READY], seen, replicas)


def _while_unknown(old: Sequence[WorkerFacts], replicas: int) -> Kept | None:
    # Of each revision the one with the most to lose; one that does not come up understands nothing.
    names = tuple({w.revision: w.name for w in old if w.phase is not Phase.BACKOFF}.values())
    if not names:
        return None
    message = f"rolling out: {_listed(names)} stays until old and new workers have said what they understand"
    return Kept(names, replicas <= len(names), Reason.WAITING_FOR_READY, message)


def _while_queued(
    able: Sequence[WorkerFacts], new: Sequence[WorkerFacts], seen: ClassFacts, replicas: int
) -> Kept | None:
    names: dict[str, None] = {}
    missing: list[QueuedVersion] = []
    for version in seen.versions:
        if not all(version.name in w.lacks for w in new):
            continue
        knowing = [w.name for w in able if version.name not in w.lacks]
        if knowing:
            missing.append(version)
            if names.keys().isdisjoint(knowing):
                names[knowing[-1]] = None
    if not missing:
        return None
    said = _listed([f"{v.jobs} of {v.kind} version {v.version}" for v in missing])
    first = missing[0]
    message = (
        f"rolling out: jobs are queued that no new worker understands ({said}); {_listed(list(names))} stays until "
        f"they are worked off. To give them up, find them by `jobqueue list --kind {first.kind} --status pending` and "
        "`jobqueue cancel` them; or roll out an app that understands them"
    )
    return Kept(tuple(names), replicas <= len(names), Reason.OLD_VERSION_QUEUED, message)


def _listed(what: Sequence[str]) -> str:
    more = f" and {len(what) - NAMED_MOST} more" if len(what) > NAMED_MOST else ""
    return ", ".join(what[:NAMED_MOST]) + more
