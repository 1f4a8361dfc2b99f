"""A broker, and databases with the classes email and sms, for the wake-up tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jobqueue import queue
from services.rabbitmq import rabbitmq

if TYPE_CHECKING:
    from collections.abc import Iterator

    from services.databases import Database
    from services.rabbitmq import Broker


@pytest.fixture
def migrated(database: Database) -> Database:
    """A database of its own with the queue in it, and the classes email and sms."""
    with database.connect() as connection:
        for class_ in ("email", "sms"):
            queue.set_class(connection, None, class_, {})
    return database


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """Shared: a test that stops or freezes it starts or thaws it again."""
    with rabbitmq() as running:
        yield running
