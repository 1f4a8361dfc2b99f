"""One JobQueue in one round: what was found out about it so far, step by step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobqueue_operator.cluster.admission import Admitted
    from jobqueue_operator.cluster.links import Failure, Link
    from jobqueue_operator.cluster.references import Trouble
    from jobqueue_operator.cluster.store import Key, Known
    from jobqueue_operator.planner.facts import Facts
    from jobqueue_operator.planner.plan import Plan
    from jobqueue_operator.planner.status import Condition
    from jobqueue_operator.platforms.kubernetes.platform import KubernetesPlatform
    from jobqueue_operator.platforms.kubernetes.pods import Pod
    from jobqueue_operator.queues.gather import Sight
    from jobqueue_operator.resources import JobQueue


@dataclass(slots=True)
class Work:
    """What the steps of a round hand on."""

    known: Known
    queue: JobQueue | None
    """What is carried out; None: nothing is touched."""
    generation: int = 0
    """The generation that `queue` is of."""
    troubles: list[Trouble] = field(default_factory=list)
    """Why what is asked for now is not what is carried out."""
    link: Link | None = None
    refusal: Failure | None = None
    """Why there is no link."""
    pods: dict[str, list[Pod]] = field(default_factory=dict)
    """By class; of removed ones too."""
    lost: list[Pod] = field(default_factory=list)
    """Pods on nodes that are lost: not counted any more."""
    now: float = 0.0
    """Seconds since the epoch, of the look at the pods."""
    platform: KubernetesPlatform | None = None
    account_put_back: bool = False
    """Whether somebody had changed the ServiceAccount."""
    sight: Sight | None = None
    plan: Plan | None = None
    facts: Facts | None = None
    """Those of the sight, with what became of the workers that the plan fences."""
    conditions: list[Condition] = field(default_factory=list)
    """Those that hold and are shown only then."""
    error: str = ""
    """What ended its part of the round early."""

    @classmethod
    def of(cls, admitted: Admitted) -> Work:
        """Begin."""
        return cls(admitted.known, admitted.queue, admitted.generation, list(admitted.troubles))

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.known.key

    @property
    def database_name(self) -> str:
        """Its database's name in facts and plans; one of its own while it is not known."""
        return str(self.link.place) if self.link is not None else f"unknown: {'/'.join(self.key)}"
