"""Which JobQueues are carried out, and as what: as asked where that can be, else as accepted last, else not at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobqueue_operator.cluster import references
from jobqueue_operator.cluster.references import Trouble
from jobqueue_operator.planner import workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jobqueue_operator.cluster.store import Key, Known
    from jobqueue_operator.resources import DownstreamCapacity, JobQueue


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

    def admit(self, known: Iterable[Known], downstreams: Mapping[Key, DownstreamCapacity]) -> list[Admitted]:
        """Return every JobQueue, the oldest first."""
        ordered = sorted(known, key=lambda k: (k.created_at, k.key))
        troubles = {each.key: _own(each) for each in ordered}
        asked = {k.key: k.queue for k in ordered if k.queue is not None and not troubles[k.key]}
        # What cannot be as asked is looked at as it was accepted; that reserves what it had reserved.
        for key, found in references.check([q for k in ordered if (q := asked.get(k.key))], downstreams).items():
            troubles[key] = found
            del asked[key]
        chosen = {k.key: (k.generation, asked[k.key]) if k.key in asked else self._last(k) for k in ordered}
        bad = references.check([queue for _, queue in chosen.values() if queue is not None], downstreams)
        for key, found in bad.items():
            troubles[key] = troubles[key] or found
            chosen[key] = 0, None
        for each in ordered:
            generation, queue = chosen[each.key]
            if queue is not None:
                self._accepted[each.key] = each.uid, generation, queue
        for key in self._accepted.keys() - {k.key for k in ordered}:
            del self._accepted[key]
        return [Admitted(k, chosen[k.key][1], chosen[k.key][0], tuple(troubles[k.key])) for k in ordered]

    def _last(self, known: Known) -> tuple[int, JobQueue | None]:
        uid, generation, queue = self._accepted.get(known.key, ("", 0, None))
        return (generation, queue) if uid == known.uid else (0, None)


def _own(known: Known) -> list[Trouble]:
    """Return what is wrong with a manifest by itself."""
    if known.problems:
        return [Trouble("InvalidSpec", problem) for problem in known.problems]
    queue = known.queue
    if queue is None:
        return [Trouble("InvalidSpec", "it cannot be read")]
    return [
        Trouble("InvalidPodTemplate", f"spec.classes[{index}].{problem}")
        for index, spec in enumerate(queue.spec.classes)
        for problem in workload.problems(queue, spec)
    ]
