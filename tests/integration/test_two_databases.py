"""Two queues in two databases on one downstream: units move between them, and the sum stays within the limit."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from jobqueue import queue
from jobqueue.signals import decode
from jobqueue_operator.planner.split import Held, Split, step

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from services.databases import Database, Factory

UNITS = 12
EACH = 4  # workers of a database, each with as many slots as there are units


class Downstream:
    """Counts who is in it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = self.peak = 0

    def move(self, units: int) -> None:
        with self._lock:
            self.now += units
            self.peak = max(self.peak, self.now)


@pytest.fixture
def databases(_databases: Factory) -> Iterator[dict[str, Database]]:
    made = {name: _databases.migrated() for name in ("left", "right")}
    for database in made.values():
        with database.connect() as conn:
            queue.set_downstream(conn, None, "db", 0)
            queue.set_class(conn, None, "c", {"downstream": "db", "units_per_job": 1})
            queue.enqueue_many(conn, [queue.NewJob("c", "work", {}) for _ in range(10_000)])
    yield made
    for database in made.values():
        _databases.drop(database)


def work(database: Database, number: int, downstream: Downstream, until: threading.Event, errors: list[str]) -> None:
    """Claim as much as there is, hold it for a moment, complete it. Counted in after the claim, out before the end."""
    dice = random.Random(number)  # noqa: S311 - a test must be repeatable
    try:
        with database.connect() as conn:
            me = queue.register_worker(conn, f"w{number}", "c", [("work", 1)], slots=UNITS).worker
            request = 0
            while not until.is_set():
                request += 1
                jobs = queue.claim(conn, "c", me, request, max_jobs=dice.randint(1, UNITS))
                downstream.move(len(jobs))
                time.sleep(dice.uniform(0.002, 0.02))
                downstream.move(-len(jobs))
                queue.complete_many(conn, [j.id for j in jobs], [j.token for j in jobs])
    except Exception as error:  # noqa: BLE001 - a thread's failure is the test's
        errors.append(repr(error))


def seen(conn: psycopg.Connection[Any]) -> Held:
    (downstream,) = decode(queue.snapshot(conn)).downstreams
    return Held(downstream.limit, downstream.in_use)


def test_units_move_and_the_sum_holds(databases: dict[str, Database]) -> None:
    downstream, until, errors = Downstream(), threading.Event(), list[str]()
    threads = [
        threading.Thread(target=work, args=(database, number, downstream, until, errors))
        for database in databases.values()
        for number in range(EACH)
    ]
    dice = random.Random(5)  # noqa: S311 - as above
    last: Split | None = None
    told: list[dict[str, int]] = []
    with databases["left"].connect() as left, databases["right"].connect() as right:
        connections = {"left": left, "right": right}
        for thread in threads:
            thread.start()
        for tick in range(80):
            favoured = ("left", "right")[tick // 8 % 2]
            wanted = {name: 40 if name == favoured else 1 for name in connections}
            blind = {"right"} if 30 <= tick < 40 else set()
            found = {name: None if name in blind else seen(conn) for name, conn in connections.items()}
            last = step(UNITS, wanted, found, last)
            told.append(last.limits)
            for name in dice.sample(sorted(last.limits), 2):  # in whatever order they are told
                if name not in blind:
                    queue.set_downstream(connections[name], None, "db", last.limits[name])
                time.sleep(0.01)
        until.set()
        for thread in threads:
            thread.join(20)
    assert errors == []
    assert downstream.peak <= UNITS
    assert downstream.peak >= UNITS - 2, "it was used"
    assert max(t["left"] for t in told) >= UNITS - 2
    assert max(t["right"] for t in told) >= UNITS - 2
    assert all(sum(t.values()) <= UNITS for t in told)
