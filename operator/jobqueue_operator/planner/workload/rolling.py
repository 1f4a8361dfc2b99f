"""How a Deployment replaces its pods: by itself, or only as far as it is told. Pure.

A Deployment ends an old pod as soon as a new one counts as available, which is sooner than anybody can look. So while
a rollout keeps old pods, no new one counts: with `minReadySeconds` beyond all patience the Deployment goes on to start
as many new ones as fit beside the old (`replicas` + maxSurge in all), and ends old ones down to `replicas` -
maxUnavailable and not below. Both numbers are then the operator's to move, and what they leave is left whether or not
the operator is there, and made again if somebody deletes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobqueue_operator.planner.facts import Phase
from jobqueue_operator.planner.plan import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jobqueue_operator.planner.facts import WorkerFacts
    from jobqueue_operator.planner.plan import Kept

NEVER = 315_360_000
"""Seconds that a new pod must be ready before it counts as available, while old ones are kept: ten years."""
NO_DEADLINE = 2**31 - 1
"""The progressDeadlineSeconds that stands for none. It must be above minReadySeconds."""


@dataclass(frozen=True, slots=True)
class Rolling:
    """What a Deployment is told."""

    surge: int
    unavailable: int
    keeps: bool = False
    """Whether old pods are kept, so that no new one counts as available."""

    @classmethod
    def of(cls, spec: Mapping[str, Any], *, surge: bool) -> Rolling:
        """Return what a Deployment was told already; `surge`: as for `rolling`, where none are kept."""
        if spec.get("minReadySeconds") != NEVER:
            return rolling(None, (), "", replicas=0, surge=surge)
        steps = spec["strategy"]["rollingUpdate"]
        return cls(steps["maxSurge"], steps["maxUnavailable"], keeps=True)

    def fields(self) -> dict[str, Any]:
        """Return these fields of its spec."""
        steps = {"maxSurge": self.surge, "maxUnavailable": self.unavailable}
        found: dict[str, Any] = {"strategy": {"type": "RollingUpdate", "rollingUpdate": steps}}
        if self.keeps:
            found |= {"minReadySeconds": NEVER, "progressDeadlineSeconds": NO_DEADLINE}
        return found


def rolling(kept: Kept | None, workers: Iterable[WorkerFacts], revision: str, *, replicas: int, surge: bool) -> Rolling:
    """Return how one class's Deployment of `replicas` pods is to replace them.

    With `surge`, a new pod is started before an old one is ended; without, one is ended first, save for the last one
    that is kept.
    """
    if kept is None:
        return Rolling(1, 0) if surge else Rolling(0, 1)
    alive = [w for w in workers if w.phase is not Phase.DRAINING]
    going = 0
    # The oldest of several old revisions would go first, whichever is kept: then none goes.
    if kept.reason is Reason.OLD_VERSION_QUEUED and len({w.revision for w in alive} - {revision}) == 1:
        ready = sum(w.revision == revision and w.phase is Phase.READY for w in alive)
        going = max(min(ready, replicas - len(kept.workers)), 0)
    if surge or replicas <= len(kept.workers):
        return Rolling(1, going, keeps=True)
    return Rolling(0, max(going, 1), keeps=True)
