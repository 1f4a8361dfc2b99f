"""The stage on which the queue's tests play: straight and through PgBouncer, or straight only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from integration.queue.stage import Stage
from services.databases import Database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from services.databases import Factory
    from services.pooler import PgBouncer

# Copying a database takes ten times as long as emptying one.
EMPTY = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle' AND backend_type = 'client backend';
DELETE FROM jobqueue.body; DELETE FROM jobqueue.ready; DELETE FROM jobqueue.lease; DELETE FROM jobqueue.outcome;
DELETE FROM jobqueue.attempt; DELETE FROM jobqueue.checkpoint; DELETE FROM jobqueue.effect;
DELETE FROM jobqueue.idempotency; DELETE FROM jobqueue.tally; DELETE FROM jobqueue.sleeper; DELETE FROM jobqueue.worker;
DELETE FROM jobqueue.memory; DELETE FROM jobqueue.class; DELETE FROM jobqueue.downstream;
UPDATE jobqueue.leader SET epoch = 0, holder = ''; UPDATE jobqueue.upkeep SET cursor = 0;
"""


@pytest.fixture(scope="session")
def _shared(_databases: Factory) -> Iterator[Database]:
    """One database for the tests that leave its tables and functions as they are."""
    made = _databases.migrated()
    yield made
    _databases.drop(made)


@pytest.fixture
def direct(_shared: Database) -> Iterator[Stage]:
    """A stage with the class `c`, straight only: for what a pooler does not change."""
    yield from _staged(_shared)


@pytest.fixture
def pooled(_shared: Database, pgbouncer: PgBouncer) -> Iterator[Stage]:
    """A stage with the class `c`, reached through PgBouncer."""
    yield from _staged(Database.of(_shared.server, _shared.name, pgbouncer.dsn(_shared.name)))


@pytest.fixture(params=["direct", "pooled"])
def stage(request: pytest.FixtureRequest) -> Stage:
    """A stage with the class `c`: once straight, once through PgBouncer."""
    made: Stage = request.getfixturevalue(request.param)
    return made


@pytest.fixture
def own(database: Database) -> Iterator[Stage]:
    """A stage in a database of the test's own, whose functions and tables it may change."""
    yield from _opened(database)


def _staged(database: Database) -> Iterator[Stage]:
    yield from _opened(database, EMPTY)


def _opened(database: Database, first: str = "") -> Iterator[Stage]:
    made = Stage.on(database)
    try:
        made.admin.execute(first)
        made.define("c")
        yield made
    finally:
        made.close()
