"""Which JobQueues are carried out, and as what: as asked where that can be, else as accepted last, else not at all."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobqueue_operator.cluster.references import Reservations, Trouble
from jobqueue_operator.planner import workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jobqueue_operator.cluster.store import Key, Known
    from jobqueue_operator.resources import DownstreamCapacity, JobQueue


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Admitted:
    """One JobQueue, and what is made of it."""

    known: Known
    queue: JobQueue | None
    """None: nothing of it is touched."""
    generation: int
    """The generation that `queue` is of."""
    troubles: tuple[Trouble, ...] = ()
    """Why what is asked for now is not carried out."""


@dataclass(slots=True)
class Admission:
    """Remembers what was accepted last."""

    _accepted: dict[Key, tuple[str, int, JobQueue]] = field(default_factory=dict)
    _judged: dict[Key, tuple[str, int, tuple[Trouble, ...]]] = field(default_factory=dict)
    """What was wrong with each by itself, in which generation."""

    def admit(self, known: Iterable[Known], downstreams: Mapping[Key, DownstreamCapacity]) -> list[Admitted]:
        """Return every JobQueue, the oldest first, which have what they reserve."""
        reservations = Reservations(downstreams)
        found = [self._one(each, reservations) for each in sorted(known, key=lambda k: (k.created_at, k.key))]
        keys = {each.known.key for each in found}
        self._accepted = {key: value for key, value in self._accepted.items() if key in keys}
        self._judged = {key: value for key, value in self._judged.items() if key in keys}
        return found

    def _one(self, known: Known, reservations: Reservations) -> Admitted:
        troubles = self._own(known)
        if known.queue is not None and not troubles:
            troubles = tuple(reservations.take(known.queue))
            if not troubles:
                self._accepted[known.key] = known.uid, known.generation, known.queue
                return Admitted(known, known.queue, known.generation)
        uid, generation, last = self._accepted.get(known.key, ("", 0, None))
        if last is None or uid != known.uid or reservations.take(last):
            return Admitted(known, None, 0, troubles)
        return Admitted(known, last, generation, troubles)

    def _own(self, known: Known) -> tuple[Trouble, ...]:
        """Return what is wrong with a manifest by itself, which is looked at once a generation."""
        uid, generation, troubles = self._judged.get(known.key, ("", 0, ()))
        if (uid, generation) != (known.uid, known.generation):
            troubles = _judge(known)
            self._judged[known.key] = known.uid, known.generation, troubles
        return troubles


def _judge(known: Known) -> tuple[Trouble, ...]:
    if known.problems:
        return tuple(Trouble("InvalidSpec", problem) for problem in known.problems)
    queue = known.queue
    if queue is None:
        return (Trouble("InvalidSpec", "it is no JobQueue"),)
    try:
        # What is missing for all classes is said once.
        found = dict.fromkeys(problem for spec in queue.spec.classes for problem in workload.problems(queue, spec))
    except Exception as error:
        log.exception("JobQueue %s/%s: its pods cannot be made", *known.key)
        return (
            Trouble("InvalidPodTemplate", f"its pods cannot be made ({type(error).__name__}); simplify podTemplate"),
        )
    return tuple(
        Trouble("InvalidPodTemplate" if "podTemplate" in problem.path else "InvalidSpec", str(problem))
        for problem in found
    )
