"""The leases a runner holds, as the supervisor knows them, and when each was last renewed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from array import array
    from collections.abc import Collection, Iterable


@dataclass(slots=True)
class Known:
    """One lease. `sent`: when the request that last renewed it left this machine, by the worker's clock."""

    id: int
    sent: float


class Leases:
    """By token, as those are never reused."""

    def __init__(self, duration: float) -> None:
        self.duration = duration
        self._known: dict[int, Known] = {}
        self._lost: set[int] = set()

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, token: int) -> bool:
        return token in self._known

    def hold(self, numbers: array[int]) -> None:
        """Take note of one claim: when it was sent in nanoseconds, then id, token, id, token, …."""
        sent = numbers[0] / 1e9
        for at in range(1, len(numbers), 2):
            self._known[numbers[at + 1]] = Known(numbers[at], sent)

    def drop(self, tokens: Iterable[int]) -> None:
        """Forget leases that have ended."""
        for token in tokens:
            self._known.pop(token, None)
            self._lost.discard(token)

    def lose(self, tokens: Iterable[int]) -> None:
        """Renew these no longer; the runner has yet to stop their jobs."""
        self._lost.update(token for token in tokens if token in self._known)

    def renewed(self, tokens: Iterable[int], sent: float) -> None:
        """Take note of a renewal."""
        for token in tokens:
            known = self._known.get(token)
            if known is not None:
                known.sent = sent

    def due(self, before: float) -> list[tuple[int, int]]:
        """List (id, token) of the leases last renewed before a moment."""
        lost = self._lost
        return [(known.id, token) for token, known in self._known.items() if known.sent < before and token not in lost]

    def end(self, token: int) -> float | None:
        """When a lease ends unless renewed, by the worker's clock; None when it is not held."""
        known = self._known.get(token)
        return None if known is None else known.sent + self.duration

    def pairs(self, tokens: Collection[int] | None = None) -> list[tuple[int, int]]:
        """List (id, token) of these leases, or of all."""
        if tokens is None:
            return [(known.id, token) for token, known in self._known.items()]
        return [(known.id, token) for token, known in self._known.items() if token in tokens]
