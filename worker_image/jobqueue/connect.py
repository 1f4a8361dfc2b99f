"""Where the database is, and connections to it.

In this order: an explicit DSN, JOBQUEUE_DSN, a folder of files (`--dsn-dir` or JOBQUEUE_DSN_DIR), libpq's own
variables. The files are read again at every connect, so that rotated credentials need no restart. A DSN is only ever
handed to libpq, never taken apart here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from jobqueue.errors import ConfigurationError, ConnectionFailed

__all__ = ["ConnInfo", "open_async", "open_sync", "resolve"]

FILES = ("host", "port", "dbname", "user", "password", "sslmode", "sslrootcert")
CONNECT_TIMEOUT = 10  # seconds an address; a DSN may say otherwise
_REFUSALS = ("authentication", "password", "does not exist", "no pg_hba.conf entry", "not permitted to log in")
# No prepared statements: a pooler in transaction mode gives the next statement another session.
_OPTIONS: dict[str, Any] = {"autocommit": True, "prepare_threshold": None}
# A peer that vanished without a word is noticed after about 30 s.
_KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000}


@dataclass(frozen=True)
class ConnInfo:
    """Where the database is. Its text form names no secret."""

    dsn: str | None
    directory: Path | None

    def conninfo(self) -> str:
        """Return libpq's connection string, files read anew. It holds the password: never log it."""
        defaults: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT, **_KEEPALIVE}
        if self.directory is not None:
            return make_conninfo("", **defaults, **_read(self.directory))
        try:
            given = conninfo_to_dict(self.dsn or "")
        except psycopg.ProgrammingError as error:
            raise ConfigurationError(f"dsn: libpq cannot read it ({type(error).__name__})") from None
        return make_conninfo(self.dsn or "", **{key: value for key, value in defaults.items() if key not in given})

    def __repr__(self) -> str:
        return "ConnInfo(…)"


def resolve(dsn: str | None = None, *, directory: Path | None = None) -> ConnInfo:
    """Find the database. Raises ConfigurationError when what is given cannot be read."""
    dsn = dsn or (None if directory is not None else os.environ.get("JOBQUEUE_DSN"))
    if dsn is None and directory is None and (named := os.environ.get("JOBQUEUE_DSN_DIR")):
        directory = Path(named)
    info = ConnInfo(dsn, None if dsn is not None else directory)
    info.conninfo()
    return info


async def open_async(info: ConnInfo, **options: Any) -> psycopg.AsyncConnection[Any]:
    """Open an asyncio connection. Raises ConnectionFailed with one line that holds no secret."""
    conninfo = info.conninfo()
    try:
        return await psycopg.AsyncConnection.connect(conninfo, **_OPTIONS | options)
    except psycopg.OperationalError as error:
        raise _failure(error, conninfo) from None


def open_sync(info: ConnInfo, **options: Any) -> psycopg.Connection[Any]:
    """Open a connection. Raises ConnectionFailed with one line that holds no secret."""
    conninfo = info.conninfo()
    try:
        return psycopg.connect(conninfo, **_OPTIONS | options)
    except psycopg.OperationalError as error:
        raise _failure(error, conninfo) from None


def _read(directory: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in FILES:
        path = directory / name
        try:
            if path.is_file():
                found[name] = str(path) if name == "sslrootcert" else path.read_text().rstrip("\r\n")
        except OSError as error:
            raise ConfigurationError(f"dsn-dir: cannot read {path}: {error.strerror}") from None
    if "host" not in found and "dbname" not in found:
        raise ConfigurationError(f"dsn-dir: {directory} holds none of the files {', '.join(FILES)}")
    return found


def _failure(error: psycopg.Error, conninfo: str) -> ConnectionFailed:
    """Say what went wrong, where, and what to do, in one line."""
    given = conninfo_to_dict(conninfo)
    said = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    # With several addresses libpq says a line for each, and puts a question below; the last that is none counts.
    what = next((line for line in reversed(said) if not line.endswith("?")), said[0])
    for marker in ("FATAL:", "failed:", "error:"):
        what = what.rsplit(marker, 1)[-1].strip()
    password = given.get("password")
    if password:
        what = what.replace(str(password), "…")
    fatal = any(word in what for word in _REFUSALS)
    remedy = "check user and password" if "authentication" in what or "password" in what else "check the DSN"
    where = (
        ", ".join(f"{key} {given[key]}" for key in ("host", "port", "dbname", "user") if given.get(key) is not None)
        or "libpq's defaults; give --dsn, JOBQUEUE_DSN, --dsn-dir or libpq's PGHOST, PGDATABASE, …"
    )
    return ConnectionFailed(f"database ({where}): {what}" + (f"; {remedy}" if fatal else ""))
