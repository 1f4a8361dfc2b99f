"""PgBouncer in transaction mode before a test's PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from services.required import missing

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONFIG = """\
[databases]
* = {target}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {pool}
max_client_conn = 500
ignore_startup_parameters = extra_float_digits
"""


@contextlib.contextmanager
def pgbouncer(dsn: str, *, pool: int = 4) -> Iterator[str]:
    """Start one on a free port; yield the DSN that goes through it."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        missing("pgbouncer", "the program is not installed")
    facts = conninfo_to_dict(dsn)
    target = {key: facts[key] for key in ("host", "port", "user", "password") if facts.get(key)}
    with socket.create_server(("127.0.0.1", 0)) as probe:
        listen = probe.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="pgbouncer-"))
    config = folder / "pgbouncer.ini"
    # auth_type any logs in as the configured user, whatever the client's name is.
    config.write_text(_CONFIG.format(target=" ".join(f"{k}={v}" for k, v in target.items()), listen=listen, pool=pool))
    folder.chmod(0o755)
    process = subprocess.Popen([program, "-q", str(config)], user=_unprivileged(str(facts["host"])))
    try:
        _wait_for_port(listen, process)
        yield make_conninfo(dsn, host="127.0.0.1", port=listen, sslmode="disable", gssencmode="disable")
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(folder)


def _unprivileged(host: str) -> int | None:
    """PgBouncer refuses to be root: be the owner of the server's socket, or nobody."""
    if os.geteuid():
        return None
    return Path(host).stat().st_uid or None if host.startswith("/") else pwd.getpwnam("nobody").pw_uid


def _wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"PgBouncer did not open port {port} (exit status {process.poll()})")
