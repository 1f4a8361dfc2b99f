"""A page of memory that runner and supervisor share, readable when the runner's interpreter is frozen.

A handler that holds the GIL (a catastrophic regular expression) stops everything the runner would say over the
pipe, so what the supervisor then needs is written here beforehand, by plain 8-byte stores:

* when the event loop last turned,
* which job's code the loop is in at this moment, and until when it may run,
* which jobs run in threads, and until when,
* which jobs were started, lately: when the runner dies, those that were not are given back, their attempts unspent,
* which jobs finished well, lately: their acknowledgement may not have been sent yet, and a finished job is
  acknowledged, never released.

Jobs are named by their lease token; times are nanoseconds of the worker's clock.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from typing import Final

TICK: Final = 0
CURRENT: Final = 1
CURRENT_DEADLINE: Final = 2
FINISHED: Final = 3
STARTED: Final = 4
_HEADER = 8
RING: Final = 32_768  # tokens kept of each; more than a runner may hold unacknowledged
_WORD = 8


@dataclass(frozen=True)
class Glance:
    """What the board said at one moment. Deadlines in seconds of the worker's clock."""

    tick: int
    current: tuple[int, float] | None
    threads: tuple[tuple[int, float], ...]


class Board:
    """The shared page. `cells` is written directly on the hot path: see the constants for who is where."""

    def __init__(self, descriptor: int, slots: int) -> None:
        self.descriptor = descriptor
        self.slots = slots
        self.threads = _HEADER
        self._finished = _HEADER + 2 * slots
        self._started = self._finished + RING
        self._memory = mmap.mmap(descriptor, _size(slots))
        self.cells = memoryview(self._memory).cast("q")

    @classmethod
    def create(cls, slots: int) -> Board:
        """Make a new, empty board for `slots` slots."""
        descriptor = os.memfd_create("jobqueue-board")
        os.ftruncate(descriptor, _size(slots))
        return cls(descriptor, slots)

    def close(self) -> None:
        """Unmap it here; the other side keeps its own mapping."""
        self.cells.release()
        self._memory.close()
        os.close(self.descriptor)

    def thread_started(self, slot: int, token: int, deadline: float) -> None:
        """Note that a job runs in this slot's thread until `deadline` at most."""
        at = self.threads + 2 * slot
        self.cells[at + 1] = int(deadline * 1e9)
        self.cells[at] = token

    def thread_ended(self, slot: int) -> None:
        """Note that the slot's thread is free."""
        self.cells[self.threads + 2 * slot] = 0

    def finished(self, token: int) -> None:
        """Note that a handler returned; its acknowledgement follows."""
        cells = self.cells
        count = cells[FINISHED]
        cells[self._finished + count % RING] = token
        cells[FINISHED] = count + 1

    def started(self, token: int) -> None:
        """Note that a handler is about to start."""
        cells = self.cells
        count = cells[STARTED]
        cells[self._started + count % RING] = token
        cells[STARTED] = count + 1

    def started_tokens(self) -> set[int]:
        """Tokens of jobs that were started, the last RING of them."""
        count = min(self.cells[STARTED], RING)
        return set(self.cells[self._started : self._started + count])

    def finished_tokens(self) -> set[int]:
        """Tokens of jobs that finished well, the last RING of them."""
        count = min(self.cells[FINISHED], RING)
        return set(self.cells[self._finished : self._finished + count])

    def glance(self) -> Glance:
        """Read what the runner is at."""
        cells = self.cells
        current = None
        token, deadline = cells[CURRENT], cells[CURRENT_DEADLINE]
        if token and cells[CURRENT] == token:
            current = (token, deadline / 1e9)
        threads = tuple(
            (cells[at], cells[at + 1] / 1e9)
            for at in range(self.threads, self.threads + 2 * self.slots, 2)
            if cells[at]
        )
        return Glance(cells[TICK], current, threads)


def _size(slots: int) -> int:
    return (_HEADER + 2 * slots + 2 * RING) * _WORD
