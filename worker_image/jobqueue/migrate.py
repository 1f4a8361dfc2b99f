"""Create and upgrade the queue's tables, functions and roles in one schema of a database.

Numbered SQL files in `schema/` are applied in order, each once, under an advisory lock. Everything belongs to a NOLOGIN
owner role; the five login-facing roles (`<prefix>_producer`, `_worker`, `_operator`, `_reader`, `_support`) are granted
what they need and nothing else. Roles belong to the whole server, hence the prefix.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors as pg_errors
from psycopg import sql

from jobqueue.errors import ConfigurationError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_SCHEMA = "jobqueue"
DEFAULT_ROLE_PREFIX = "jobqueue"
ROLES = ("producer", "worker", "operator", "reader", "support")
LOCK_TIMEOUT_SECONDS = 2
LOCK_RETRIES = 30
MINIMUM_SERVER = 150000


@dataclass(frozen=True)
class Migration:
    """One numbered file: `version` from its name, `text` with its placeholders."""

    version: int
    name: str
    text: str


def migrations() -> list[Migration]:
    """Return every migration of this release, in order."""
    return sorted(_files(), key=lambda m: m.version)


def _files() -> Iterator[Migration]:
    for file in resources.files("jobqueue").joinpath("schema").iterdir():
        found = re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name)
        if found:
            yield Migration(int(found[1]), found[2], file.read_text("utf-8"))


def latest() -> int:
    """Return the schema version that this release's code is written for."""
    return migrations()[-1].version


def channel(schema: str = DEFAULT_SCHEMA) -> str:
    """Return the NOTIFY channel of a schema."""
    return f"jobqueue:{schema}"


def apply(
    conn: psycopg.Connection[Any], *, schema: str = DEFAULT_SCHEMA, role_prefix: str = DEFAULT_ROLE_PREFIX
) -> list[str]:
    """Bring a database up to date; safe while workers run, and when run twice or twice at once.

    `conn` must be in autocommit mode; its user needs CREATE on the database, and CREATEROLE where the roles are
    missing. Returns the names of the migrations applied now (empty when it was up to date). Raises SchemaError
    when the schema is newer than this release, or when the user may not do it.
    """
    _check_names(schema, role_prefix)
    if conn.info.server_version < MINIMUM_SERVER:
        msg = f"this server is PostgreSQL {conn.info.server_version // 10000}; 15 or newer is needed"
        raise SchemaError(msg)
    for attempt in range(LOCK_RETRIES):
        try:
            return _apply_once(conn, schema, role_prefix)
        except (pg_errors.LockNotAvailable, pg_errors.UniqueViolation, pg_errors.InternalError_):
            # Somebody holds a table, or another migration creates the same cluster-wide role at this moment.
            if attempt == LOCK_RETRIES - 1:
                raise
        except pg_errors.InsufficientPrivilege as e:
            msg = (
                f"user {conn.info.user!r} may not migrate: {e.diag.message_primary}; "
                "it needs CREATE on the database, and CREATEROLE (or the roles created beforehand and granted to it)"
            )
            raise SchemaError(msg) from None
    raise AssertionError


def check(conn: psycopg.Connection[Any], *, schema: str = DEFAULT_SCHEMA) -> None:
    """Raise SchemaError unless the schema is one that this release works with."""
    _judge(schema, *_read_version(conn, schema))


async def check_async(conn: psycopg.AsyncConnection[Any], *, schema: str = DEFAULT_SCHEMA) -> None:
    """Do as `check`, on an async connection."""
    try:
        cursor = await conn.execute(_version_query(schema))
        row = await cursor.fetchone()
    except (pg_errors.UndefinedTable, pg_errors.InvalidSchemaName):
        row = None
    except pg_errors.InsufficientPrivilege:
        raise SchemaError(_denied(conn.info.user, schema)) from None
    _judge(schema, *_facts(row))


def _read_version(conn: psycopg.Connection[Any], schema: str) -> tuple[int, int]:
    try:
        row = conn.execute(_version_query(schema)).fetchone()
    except (pg_errors.UndefinedTable, pg_errors.InvalidSchemaName):
        row = None
    except pg_errors.InsufficientPrivilege:
        raise SchemaError(_denied(conn.info.user, schema)) from None
    return _facts(row)


def _version_query(schema: str) -> sql.Composed:
    return sql.SQL("SELECT max(version), max(oldest_release) FROM {}.migration").format(sql.Identifier(schema))


def _facts(row: Any) -> tuple[int, int]:
    return (row[0] or 0, row[1] or 0) if row else (0, 0)


def _denied(user: str, schema: str) -> str:
    return (
        f"user {user!r} has no access to schema {schema!r}; grant it one of the queue's roles, such as jobqueue_worker"
    )


def _judge(schema: str, version: int, oldest_release: int) -> None:
    option = "" if schema == DEFAULT_SCHEMA else f" --schema {schema}"
    if version == 0:
        msg = f"there is no queue in schema {schema!r} of this database; run: jobqueue migrate{option}"
        raise SchemaError(msg)
    if version < latest():
        msg = f"schema {schema!r} is at version {version}, this release needs {latest()}; run: jobqueue migrate{option}"
        raise SchemaError(msg)
    if oldest_release > latest():
        msg = (
            f"schema {schema!r} is at version {version}, which needs release {oldest_release} or newer; this one knows "
            f"{latest()}: upgrade the package (pip install --upgrade jobqueue-operator), do not migrate"
        )
        raise SchemaError(msg)


def _check_names(schema: str, role_prefix: str) -> None:
    for field, value in (("schema", schema), ("role prefix", role_prefix)):
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,39}", value):
            msg = f"{field}: {value!r} will not do; use up to 40 lower-case letters, digits and _"
            raise ConfigurationError(msg)


def _apply_once(conn: psycopg.Connection[Any], schema: str, prefix: str) -> list[str]:
    done: list[str] = []
    with conn.transaction():
        conn.execute("SELECT pg_advisory_xact_lock(hashtext('jobqueue'), hashtext(%s))", [schema])
        conn.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(f"{LOCK_TIMEOUT_SECONDS}s"))
        # The functions' bodies are checked against tables that the same file may create; quiet notices, loud errors.
        conn.execute("SET LOCAL client_min_messages = warning")
        _check_owner(conn, schema, f"{prefix}_owner")
        _create_roles(conn, prefix)
        owner = sql.Identifier(f"{prefix}_owner")
        conn.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {} AUTHORIZATION {}").format(sql.Identifier(schema), owner))
        _open_schema(conn, schema, f"{prefix}_owner")
        _become(conn, owner)
        conn.execute(
            sql.SQL(
                "CREATE TABLE IF NOT EXISTS {}.migration (version integer PRIMARY KEY, name text NOT NULL,"
                " oldest_release integer NOT NULL DEFAULT 0, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
            ).format(sql.Identifier(schema))
        )
        version, oldest_release = _read_version(conn, schema)
        if oldest_release > latest():
            _judge(schema, version, oldest_release)
        for migration in migrations():
            if migration.version > version:
                conn.execute(_render(conn, migration.text, schema, prefix))
                conn.execute(
                    sql.SQL("INSERT INTO {}.migration (version, name) VALUES (%s, %s)").format(sql.Identifier(schema)),
                    [migration.version, migration.name],
                )
                done.append(f"{migration.version:04d}_{migration.name}")
    return done


def _check_owner(conn: psycopg.Connection[Any], schema: str, owner: str) -> None:
    """Refuse to go on as another owner than the one that the queue was made with, before any role is created."""
    query = "SELECT tableowner FROM pg_tables WHERE schemaname = %s AND tablename = 'migration'"
    row = conn.execute(query, [schema]).fetchone()
    if row is None or row[0] == owner:
        return
    prefix = row[0].removesuffix("_owner")
    remedy = f"give --role-prefix {prefix}" if prefix != row[0] else "choose another --schema"
    raise SchemaError(f"schema {schema!r} belongs to role {row[0]!r}, not to {owner!r}; {remedy}")


def _open_schema(conn: psycopg.Connection[Any], schema: str, owner: str) -> None:
    """Let the owner create and grant in a schema that was there before, and is somebody else's."""
    query = "SELECT has_schema_privilege(%s, %s, 'CREATE WITH GRANT OPTION, USAGE WITH GRANT OPTION')"
    row = conn.execute(query, [owner, schema]).fetchone()
    if row and not row[0]:
        grant = sql.SQL("GRANT ALL ON SCHEMA {} TO {} WITH GRANT OPTION")
        conn.execute(grant.format(sql.Identifier(schema), sql.Identifier(owner)))


def _create_roles(conn: psycopg.Connection[Any], prefix: str) -> None:
    names = [f"{prefix}_{role}" for role in ("owner", *ROLES)]
    known = {row[0] for row in conn.execute("SELECT rolname FROM pg_roles WHERE rolname = ANY (%s)", [names])}
    for name in names:
        if name not in known:
            conn.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(name)))
    owner = sql.Identifier(f"{prefix}_owner")
    if not _may_become(conn, owner):
        # Since PostgreSQL 16 the creator of a role administers it without being able to act as it.
        conn.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(owner))


def _may_become(conn: psycopg.Connection[Any], role: sql.Identifier) -> bool:
    try:
        with conn.transaction():
            _become(conn, role)
            conn.execute("RESET ROLE")
    except pg_errors.InsufficientPrivilege:
        return False
    return True


def _become(conn: psycopg.Connection[Any], role: sql.Identifier) -> None:
    conn.execute(sql.SQL("SET LOCAL ROLE {}").format(role))


def _render(conn: psycopg.Connection[Any], text: str, schema: str, prefix: str) -> bytes:
    """Fill the placeholders of a migration. Inside quoted SQL strings the schema's name needs no further quoting."""
    values = {
        "SCHEMA": sql.Identifier(schema),
        "CHANNEL": sql.Literal(channel(schema)),
        # Advisory locks are shared by a whole database: a schema's are offset by its name.
        "LOCK": sql.SQL("({})").format(sql.Literal(zlib.crc32(schema.encode()) % 1_000_000_000)),
        **{role.upper(): sql.Identifier(f"{prefix}_{role}") for role in ROLES},
    }
    rendered = {key: value.as_string(conn) for key, value in values.items()}
    return re.sub(r"__([A-Z]+)__", lambda m: rendered[m[1]], text).encode()
