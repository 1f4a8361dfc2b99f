"""What producers do in the demo: a burst of one job of each kind a file, and a trickle while the scenes are played."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from check import Name

from jobqueue import queue
from jobqueue.queue import NewJob

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import psycopg
    from inputs import File

CLASSES = {"file.hash": "fast", "file.compress": "slow"}
JOBS_LEAST = 800
"""Jobs of the burst: a small folder's files are worked on in several rounds."""
BATCH = 5000
"""Jobs in one call of enqueue_many."""
TRICKLE = 5
"""Hashes in one drop of the trickle."""
BACKLOG_LEAST = 60
"""Slow jobs that each drop fills their backlog up to, while the scenes need work going on."""


@dataclass
class Load:
    """Everything that was enqueued, by job id."""

    files: Sequence[File]
    enqueued: dict[int, Name] = field(default_factory=dict)
    _round: int = 0
    _next: dict[str, int] = field(default_factory=dict)
    """Per kind, how many came after the burst."""

    def burst(self, conn: psycopg.Connection[Any]) -> tuple[int, datetime]:
        """Enqueue one job of each kind a file, in one transaction; for few files, several rounds.

        Return the rounds, and the database's time just before the commit.
        """
        rounds = max(1, -(-JOBS_LEAST // (len(CLASSES) * len(self.files))))
        names = [
            Name(kind, round_, number)
            for round_ in range(1, rounds + 1)
            for kind in CLASSES
            for number in range(len(self.files))
        ]
        with conn.transaction():
            self._enqueue(conn, names)
            row = conn.execute("SELECT clock_timestamp()").fetchone()
        assert row is not None  # noqa: S101 - for the type checker
        self._round = rounds + 1
        return rounds, row[0]

    def again(self, conn: psycopg.Connection[Any], most: int = 500) -> int:
        """Enqueue jobs of the burst a second time, as a producer that had no answer does. Return how many were new."""
        names = list(self.enqueued.values())[:most]
        return sum(made.created for made in queue.enqueue_many(conn, [self._job(name) for name in names]))

    def trickle(self, conn: psycopg.Connection[Any], waiting_slow: int) -> None:
        """Enqueue a few more: always some hashes, and compressions when few of them wait."""
        self._drop(conn, "file.hash", TRICKLE)
        self._drop(conn, "file.compress", max(BACKLOG_LEAST - waiting_slow, 0))

    def _drop(self, conn: psycopg.Connection[Any], kind: str, count: int) -> None:
        first = self._next.get(kind, 0)
        self._next[kind] = first + count
        # A file's turn comes again in a round of its own, so that every result has a name of its own.
        turns = (divmod(first + i, len(self.files)) for i in range(count))
        self._enqueue(conn, [Name(kind, self._round + turn, number) for turn, number in turns])

    def _enqueue(self, conn: psycopg.Connection[Any], names: Sequence[Name]) -> None:
        for start in range(0, len(names), BATCH):
            batch = names[start : start + BATCH]
            made = queue.enqueue_many(conn, [self._job(name) for name in batch])
            self.enqueued.update(zip((job.id for job in made), batch, strict=True))

    def _job(self, name: Name) -> NewJob:
        payload = {"round": name.round, "number": name.number, "uri": self.files[name.number].uri}
        return NewJob(CLASSES[name.kind], name.kind, payload, key=f"{name.round}-{name.number}")
