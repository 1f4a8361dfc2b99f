"""Databases for single tests: copies of one that was migrated once."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
import psycopg.conninfo

from jobqueue import migrate, queue

if TYPE_CHECKING:
    from services.postgres import Server

SCHEMA = "jobqueue"
ROLE_PREFIX = "jobqueue"  # roles belong to the whole server, which is ours alone
TEMPLATE = "jobqueue_template"
CLASS_DEFAULT = {"lease_seconds": 60, "timeout_seconds": 30}

_numbers = itertools.count(1)


class Database(str):
    """A database's DSN, as a string that psycopg takes, with what else a test may ask about it."""

    __slots__ = ("name", "server")

    name: str
    server: Server

    @classmethod
    def of(cls, server: Server, name: str, dsn: str | None = None) -> Database:
        """Describe the database `name`; `dsn` when it is reached some other way than directly."""
        database = cls(dsn or server.dsn(name))
        database.name = name
        database.server = server
        return database

    @property
    def dsn(self) -> str:
        """The DSN, as a plain string."""
        return str.__str__(self)

    @property
    def direct(self) -> str:
        """The DSN without PgBouncer."""
        return self.server.dsn(self.name)

    def as_user(self, user: str, **parameters: str) -> str:
        """Return the DSN for another role."""
        return psycopg.conninfo.make_conninfo(self.dsn, user=user, **parameters)

    def connect(self, *, autocommit: bool = True) -> psycopg.Connection[tuple[object, ...]]:
        """Open a superuser's connection straight to the server, for looking at what happened."""
        return psycopg.connect(self.direct, autocommit=autocommit, application_name="test")


@dataclass(frozen=True)
class Factory:
    """Makes databases on one server."""

    server: Server

    def prepare(self) -> None:
        """Migrate the template, with the class `default` in it."""
        self.server.create_database(TEMPLATE)
        with psycopg.connect(self.server.dsn(TEMPLATE), autocommit=True) as connection:
            migrate.apply(connection, schema=SCHEMA, role_prefix=ROLE_PREFIX)
            queue.set_class(connection, None, "default", CLASS_DEFAULT)

    def empty(self) -> Database:
        """Create a database with nothing in it."""
        return self._create(None)

    def migrated(self) -> Database:
        """Create a copy of the template."""
        return self._create(TEMPLATE)

    def _create(self, template: str | None) -> Database:
        self.server.start()  # a test before this one may have left it stopped
        name = f"test_{next(_numbers)}"
        self.server.create_database(name, template=template)
        return Database.of(self.server, name)

    def drop(self, database: Database) -> None:
        """Drop the database, whoever still uses it."""
        self.server.start()
        self.server.drop_database(database.name)
