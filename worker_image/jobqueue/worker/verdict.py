"""Judging a runner from outside: is its interpreter frozen, and by which job? Pure: facts in, verdict out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobqueue.worker.board import Glance

FROZEN_LOOKS = 10  # looks in a row without a turn of its loop; counted, as the whole machine may have slept
GRACE = 0.5  # seconds past its deadline that a runner which still turns gets to act by itself
AIMLESS = 5.0  # seconds beyond the class timeout that a loop frozen by no job we know of gets


@dataclass(frozen=True)
class Kill:
    """The runner must be killed. `offenders`: tokens of the jobs that are to blame, if any is known."""

    why: str
    offenders: frozenset[int] = frozenset()


@dataclass
class Watch:
    """Remembers from look to look how long the loop has not turned."""

    class_timeout: float
    _tick: int = -1
    _looks: int = 0
    _since: float = 0.0
    frozen: bool = field(default=False, init=False)

    def look(self, glance: Glance, moment: float, lease_end: Callable[[int], float | None]) -> Kill | None:
        """Judge one glance at the board, taken at `moment`."""
        if glance.tick == 0:
            return None  # it has not begun
        if glance.tick != self._tick:
            self._tick, self._looks, self._since = glance.tick, 0, moment
        else:
            self._looks += 1
        self.frozen = self._looks >= FROZEN_LOOKS
        if not self.frozen:
            return None
        late = [token for token, deadline in glance.threads if moment > deadline + GRACE]
        if glance.current is not None and moment > glance.current[1]:
            late.append(glance.current[0])
        if late:
            return Kill("a handler held the interpreter past its timeout", frozenset(late))
        running = [token for token, _ in glance.threads]
        if glance.current is not None:
            running.append(glance.current[0])
        for token in running:
            end = lease_end(token)
            if end is not None and moment > end:
                return Kill("a handler held the interpreter and its lease could not be renewed")
        if not running and moment - self._since > self.class_timeout + AIMLESS:
            return Kill("its event loop was frozen for longer than the class's timeout")
        return None
