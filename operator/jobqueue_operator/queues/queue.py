"""What the loop needs of a queue's database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobqueue.signals import Snapshot

HERE = ""
"""The key of the one database that is looked at, as in `Allocation.limits` and in the facts of a downstream."""


class Queue(Protocol):
    """Every call raises JobQueueError when the database does not answer or refuses.

    Those that change what workers may do name the epoch of this leadership, and raise StaleEpoch when another operator
    leads the database by now.
    """

    @property
    def epoch(self) -> int | None:
        """This leadership's number; None before it began."""

    async def snapshot(self, *, tick: float) -> Snapshot:
        """Return all facts of all classes; `tick`: seconds since the last look, about."""

    async def done(self) -> Mapping[str, int]:
        """Return how many jobs of each class are done; a little old when counting takes long."""

    async def retire(self, workers: Sequence[int]) -> Mapping[int, int]:
        """Fence registered workers: they claim nothing from now on. Return how many jobs each still holds, by id."""

    async def take_back(self, workers: Sequence[int]) -> Sequence[int]:
        """Let retired workers claim again; return the ids of those that were retired."""

    async def limit(self, downstream: str, units: int) -> None:
        """Hold the claims on a downstream to so many units."""

    async def remember(self, class_: str, memory: Mapping[str, float]) -> None:
        """Keep what a planner must know of a class after a restart; snapshots give it back."""

    async def sleeping(self, class_: str, *, asleep: bool) -> None:
        """Say whether this operator wants to be notified of a class's new jobs."""

    async def forget(self, workers: Sequence[int]) -> int:
        """End workers that are known to be dead; return how many jobs they lost."""

    async def upkeep(self, *, maintain: bool) -> None:
        """Sweep, and run maintenance as well when asked to."""
