"""Fixtures: real PostgreSQL and PgBouncer, databases for single tests, processes that always end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from services.cutting_proxy import CuttingProxy
from services.databases import Database, Factory
from services.pooler import PgBouncer
from services.postgres import Server
from services.processes import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# The database decides how long an example takes. In CI the examples are the same each time; elsewhere they wander.
hypothesis.settings.register_profile("project", deadline=None, derandomize="CI" in os.environ, print_blob=True)
hypothesis.settings.load_profile("project")


@pytest.fixture(scope="session")
def _server() -> Iterator[Server]:
    server = Server(os.environ.get("JOBQUEUE_TEST_PG", "18"))
    try:
        server.start()
        yield server
    finally:
        server.destroy()


@pytest.fixture(scope="session")
def _databases(_server: Server) -> Factory:
    factory = Factory(_server)
    factory.prepare()
    return factory


@pytest.fixture
def pg(_server: Server) -> Iterator[Server]:
    """The PostgreSQL server of this test run; a test may stop it and need not start it again."""
    _server.start()
    yield _server
    _server.start()


@pytest.fixture
def database(_databases: Factory) -> Iterator[Database]:
    """A fresh migrated database with the class `default` (lease 60 s, timeout 30 s)."""
    made = _databases.migrated()
    yield made
    _databases.drop(made)


@pytest.fixture
def empty_database(_server: Server) -> Iterator[Database]:
    """A fresh database with nothing in it."""
    factory = Factory(_server)
    made = factory.empty()
    yield made
    factory.drop(made)


@pytest.fixture(scope="session")
def pgbouncer(_server: Server) -> Iterator[PgBouncer]:
    """PgBouncer in transaction mode before the server; skips the test where it is not installed."""
    bouncer = PgBouncer(_server)
    yield bouncer
    bouncer.destroy()


@pytest.fixture
def pooled_database(pgbouncer: PgBouncer, database: Database) -> Database:
    """The same database, reached through PgBouncer."""
    return Database.of(database.server, database.name, pgbouncer.dsn(database.name))


@pytest.fixture(params=["direct", "pgbouncer"])
def dsn(request: pytest.FixtureRequest) -> Database:
    """A fresh migrated database: once straight, once through PgBouncer."""
    name = {"direct": "database", "pgbouncer": "pooled_database"}[request.param]
    made: Database = request.getfixturevalue(name)
    return made


@pytest.fixture
def proxy(pg: Server) -> Iterator[CuttingProxy]:
    """A proxy before the server that cuts connections at chosen points; `proxy.dsn(database)` goes through it."""
    with CuttingProxy("127.0.0.1", pg.port) as running:
        yield running


@pytest.fixture
def run() -> Iterator[Callable[..., Process]]:
    """Start a process: `run("jobqueue", "worker", env=…)`. All are killed with their groups at the end."""
    started: list[Process] = []

    def start(*command: Any, **options: Any) -> Process:
        process = Process(*command, **options)
        started.append(process)
        return process

    yield start
    for process in started:
        process.close()
