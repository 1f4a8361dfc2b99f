"""PgBouncer in transaction mode, in front of the server under test."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import psycopg
import psycopg.conninfo

from services import accounts
from services.postgres import SUPERUSER
from services.required import require
from services.waiting import eventually

if TYPE_CHECKING:
    from services.postgres import Server

_START_WITHIN = 10.0  # seconds
_CONFIGURATION = """\
[databases]
* = host=127.0.0.1 port={server_port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir = {folder}
pool_mode = transaction
max_client_conn = 500
default_pool_size = {pool_size}
auth_type = trust
auth_file = {folder}/users.txt
auth_user = {superuser}
auth_query = select usename, coalesce(passwd, '') from pg_catalog.pg_shadow where usename = $1
admin_users = {superuser}
server_login_retry = 1
server_tls_sslmode = disable
log_connections = 0
log_disconnections = 0
"""


class PgBouncer:
    """One PgBouncer; every database of the server is reachable through it under its own name."""

    def __init__(self, server: Server, *, pool_size: int = 20) -> None:
        """Start PgBouncer before `server`; the test is skipped (or failed) where it is not installed."""
        program = require("pgbouncer")
        self.folder = accounts.service_folder("bouncer")
        self.port = accounts.free_port()
        self.log = self.folder / "pgbouncer.log"
        (self.folder / "users.txt").write_text(f'"{SUPERUSER}" ""\n')
        configuration = self.folder / "pgbouncer.ini"
        configuration.write_text(
            _CONFIGURATION.format(
                server_port=server.port,
                port=self.port,
                folder=self.folder,
                superuser=SUPERUSER,
                pool_size=pool_size,
            )
        )
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(program), str(configuration)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
                **accounts.as_service_user(),
            )
        try:
            eventually(self._answers, within=_START_WITHIN, what="PgBouncer's start")
        except BaseException:
            self.destroy()
            raise

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(f"PgBouncer ended:\n{self.log.read_text(errors='replace')}")
        try:
            # Its own database `pgbouncer` answers without a server behind it.
            psycopg.connect(self.dsn("pgbouncer"), autocommit=True).close()
        except psycopg.OperationalError:
            return False
        return True

    def dsn(self, dbname: str, *, user: str = SUPERUSER, **parameters: str) -> str:
        """Return a DSN of that database through PgBouncer."""
        return psycopg.conninfo.make_conninfo(
            host="127.0.0.1",
            port=self.port,
            dbname=dbname,
            user=user,
            **({"sslmode": "disable", "gssencmode": "disable"} | parameters),
        )

    def destroy(self) -> None:
        """Stop PgBouncer at once and remove its files."""
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
