"""Where the database is, and connections to it.

In this order: what is given explicitly (a DSN, or a folder of files), JOBQUEUE_DSN, JOBQUEUE_DSN_DIR, libpq's own
variables. The files are read again at every connect, so that rotated credentials need no restart. A DSN is only ever
handed to libpq, never taken apart here.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from jobqueue.errors import ConfigurationError, ConnectionFailed

__all__ = ["ConnInfo", "is_named", "open_async", "open_async_as", "open_sync", "resolve"]

FILES = ("host", "port", "dbname", "user", "password", "sslmode", "sslrootcert")
CONNECT_TIMEOUT = 10  # seconds an address; a DSN may say otherwise
# Any of libpq's variables that says where a database is; without one its default would be whatever runs here.
_LIBPQ = ("PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGUSER", "PGSERVICE")
_WAYS = "give --dsn, JOBQUEUE_DSN, --dsn-dir, JOBQUEUE_DSN_DIR, or libpq's PGHOST, PGDATABASE, …"
# libpq tells no SQLSTATE of a connection that failed. The first words found say what to do; waiting mends none of it.
_REFUSALS = {
    "authentication": "check user and password",
    "password": "check user and password",
    "role ": "check the user, or create it",
    "no such user": "check the user, or tell the pooler of it",
    "root certificate file": "check sslrootcert",
    "certificate": "check sslmode and sslrootcert",
    "SSL": "check sslmode",
    "no pg_hba.conf entry": "let this host, user and database in by pg_hba.conf",
    "not permitted to log in": "give the user LOGIN, or take another one",
    "permission denied": "grant the user CONNECT on the database",
    "does not exist": "check dbname, or create the database",
    "no such database": "check dbname, or tell the pooler of it",
    "invalid ": "check the DSN",
    "could not match": "check the DSN",
    "unsupported startup parameter": "have the pooler ignore it, or leave it out",
}
_HOW = (
    "write postgresql://user@host:5432/dbname or host=… dbname=… user=…; in a URL write @ : / % of a password as "
    "%40 %3A %2F %25, or use --dsn-dir"
)
# No prepared statements: a pooler in transaction mode gives the next statement another session.
_OPTIONS: dict[str, Any] = {"autocommit": True, "prepare_threshold": None}
# A peer that vanished without a word is noticed after about 30 s.
_KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000}

Opened = TypeVar("Opened", bound=psycopg.AsyncConnection[Any])


@dataclass(frozen=True)
class ConnInfo:
    """Where the database is. Its text form names no secret."""

    dsn: str | None
    directory: Path | None

    def conninfo(self) -> str:
        """Return libpq's connection string, files read anew. It holds the password: never log it."""
        defaults: dict[str, Any] = dict(_KEEPALIVE)
        if not os.environ.get("PGCONNECT_TIMEOUT"):
            defaults["connect_timeout"] = CONNECT_TIMEOUT
        if self.directory is not None:
            return make_conninfo("", **defaults, **_read(self.directory))
        try:
            given = conninfo_to_dict(self.dsn or "")
        except psycopg.ProgrammingError as error:
            # Nothing of libpq's message: it may quote what it stumbled on, and that may be the password.
            raise ConfigurationError(f"dsn: libpq cannot read it ({type(error).__name__}); {_HOW}") from None
        if _is_torn(given):
            raise ConfigurationError(f"dsn: its port or database name holds what looks like a password; {_HOW}")
        return make_conninfo(self.dsn or "", **{key: value for key, value in defaults.items() if key not in given})

    def __repr__(self) -> str:
        return "ConnInfo(…)"


def is_named() -> bool:
    """Return whether the environment says where the database is."""
    return any(os.environ.get(name) for name in ("JOBQUEUE_DSN", "JOBQUEUE_DSN_DIR", *_LIBPQ))


def resolve(dsn: str | None = None, *, directory: Path | None = None) -> ConnInfo:
    """Find the database. Raises ConfigurationError when nothing says where it is, or what does cannot be read."""
    if not dsn and directory is None:
        dsn, named = os.environ.get("JOBQUEUE_DSN"), os.environ.get("JOBQUEUE_DSN_DIR")
        directory = Path(named) if named else None
    if not dsn and directory is None and not is_named():
        raise ConfigurationError(f"nothing says where the database is; {_WAYS}")
    info = ConnInfo(dsn or None, None if dsn else directory)
    info.conninfo()
    return info


async def open_async(info: ConnInfo, **options: Any) -> psycopg.AsyncConnection[Any]:
    """Open an asyncio connection. Raises ConnectionFailed with one line that holds no secret."""
    return await open_async_as(psycopg.AsyncConnection[Any], info, **options)


async def open_async_as(kind: type[Opened], info: ConnInfo, **options: Any) -> Opened:
    """Open an asyncio connection of a kind of one's own. Raises as `open_async`, and what that kind raises."""
    conninfo = info.conninfo()
    try:
        return await kind.connect(conninfo, **_OPTIONS | options)
    except (psycopg.Error, UnicodeError) as error:
        raise _failure(error, conninfo) from None


def open_sync(
    info: ConnInfo, *, kind: type[psycopg.Connection[Any]] = psycopg.Connection, **options: Any
) -> psycopg.Connection[Any]:
    """Open a connection of some kind. Raises ConnectionFailed with one line that holds no secret."""
    conninfo = info.conninfo()
    try:
        return kind.connect(conninfo, **_OPTIONS | options)
    except (psycopg.Error, UnicodeError) as error:
        raise _failure(error, conninfo) from None


def _read(directory: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in FILES:
        path = directory / name
        try:
            if path.is_file():
                found[name] = str(path) if name == "sslrootcert" else path.read_text("utf-8").rstrip("\r\n")
        except OSError as error:
            raise ConfigurationError(f"dsn-dir: cannot read {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ConfigurationError(f"dsn-dir: {path} is not UTF-8 text") from None
        if "\0" in found.get(name, ""):
            raise ConfigurationError(f"dsn-dir: {path} contains a NUL")
    if "host" not in found and "dbname" not in found:
        raise ConfigurationError(f"dsn-dir: {directory} holds none of the files {', '.join(FILES)}")
    return found


def _is_torn(given: dict[str, Any]) -> bool:
    """Whether a slash in a URL's password ended its host, so that the rest became port and database."""
    ports = str(given.get("port") or "").replace(",", "")
    return (ports != "" and not ports.isdecimal()) or "@" in str(given.get("dbname") or "")


def _failure(error: Exception, conninfo: str) -> ConnectionFailed:
    """Say what went wrong, where, and what to do, in one line."""
    given = _effective(conninfo)
    said = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    # With several addresses libpq says a line for each, and puts a question below; the last that is none counts.
    what = next((line for line in reversed(said) if not line.endswith("?")), said[0])
    for marker in ("FATAL:", "failed:", "error:"):
        what = what.rsplit(marker, 1)[-1].strip()
    if password := given.get("password"):
        what = what.replace(password, "…")
    # Names are quoted, and might hold any of these words.
    bare = re.sub(r""""[^"]*"|'[^']*'""", "", what)
    remedy = next((remedy for words, remedy in _REFUSALS.items() if words in bare), None)
    if remedy is None and not isinstance(error, psycopg.OperationalError):
        remedy = "check the DSN"
    where = ", ".join(f"{key} {given[key]}" for key in ("host", "port", "dbname", "user") if key in given)
    return ConnectionFailed(
        f"database ({where}): {what}; {remedy or 'is PostgreSQL running there, and can it be reached from here?'}",
        retry_helps=remedy is None,
    )


def _effective(conninfo: str) -> dict[str, str]:
    """Return what libpq goes by: what was given, over its variables, its service file and its defaults."""
    fallback = {o.keyword.decode(): o.val.decode(errors="replace") for o in pq.Conninfo.get_defaults() if o.val}
    return fallback | {key: str(value) for key, value in conninfo_to_dict(conninfo).items() if value}
