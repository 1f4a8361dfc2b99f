"""Who the services run as: PostgreSQL and PgBouncer refuse to run as root."""

from __future__ import annotations

import functools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any


@functools.cache
def service_user() -> pwd.struct_passwd | None:
    """Return the account for the services, or None to run them as ourselves (we are not root)."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("running as root, and neither `postgres` nor `nobody` exists to run the services as")


def as_service_user() -> dict[str, Any]:
    """Return the keyword arguments that make subprocess start a program as the service user."""
    user = service_user()
    if user is None:
        return {"env": _environment()}
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "env": _environment()}


def _environment() -> dict[str, str]:
    # Our own PG* variables are for clients, LC_* for people; a server in a test has neither.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return kept | {"LC_ALL": "C.UTF-8"}


def service_folder(prefix: str) -> Path:
    """Make a short-named folder (a unix socket's path holds 107 bytes) that the service user owns."""
    folder = Path(tempfile.mkdtemp(prefix=f"jq-{prefix}-", dir="/tmp"))
    own(folder)
    return folder


def own(path: Path) -> None:
    """Give a file or folder to the service user."""
    user = service_user()
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid)


def reachable(programs: Path, into: Path) -> Path:
    """Return a folder with the programs of the embedded PostgreSQL (or Debian's) that the service user can execute.

    Under a home closed to others, the wheel's installation and its libraries are copied to `into`.
    """
    probe = [str(programs / "postgres"), "--version"]
    try:
        if subprocess.run(probe, capture_output=True, check=False, cwd="/", **as_service_user()).returncode == 0:
            return programs
    except PermissionError:
        pass
    installation, package = programs.parent, programs.parent.parent
    # The programs look for their libraries beside the package, by a path relative to themselves.
    copied = into / package.name / installation.name
    shutil.copytree(installation, copied, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, into / libraries.name)
    return copied / programs.name


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
