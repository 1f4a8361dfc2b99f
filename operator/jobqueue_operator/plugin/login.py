"""A login of the queue, from a Secret into a private folder for as long as one command runs."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from jobqueue.cli.failure import Failed, Refused
from jobqueue.connect import FILES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jobqueue_operator.plugin.options import Detour

NEEDED = ("host", "dbname", "user")
REACHED_WITHIN = 5.0
"""Seconds for a connection to the database's host."""
PORT = "5432"
"""PostgreSQL's own."""


@dataclass(frozen=True, slots=True)
class Login:
    """What a Secret says."""

    secret: str
    namespace: str
    values: Mapping[str, bytes]
    """By name of file; those of FILES alone."""


def read(secret: str, namespace: str, data: Mapping[str, bytes]) -> Login:
    """Take the keys of a login from a Secret. Raises Refused when one is missing."""
    values = {key: data[key] for key in FILES if key in data}
    if missing := [key for key in NEEDED if not values.get(key, b"").strip()]:
        raise Refused(
            f"Secret {secret}: has no {', '.join(missing)}",
            hint=f"its keys must be {', '.join(FILES)}; password, port and the ssl ones may be left out",
        )
    return Login(secret, namespace, values)


def remedy(host: str, port: str, namespace: str) -> str:
    """Say how a database is reached that this machine cannot reach by its name."""
    name, _, rest = host.rstrip(".").partition(".")
    if rest in {"", namespace} or ".svc." in f".{rest}.":
        where = rest.partition(".")[0] or namespace
        return (
            f"that name is the cluster's own: run `kubectl port-forward -n {where} service/{name} {port}:{port}` "
            f"beside it, and add --host 127.0.0.1 --port {port}"
        )
    return "run it from where that can be reached, or through a tunnel with --host and --port"


@contextmanager
def used(login: Login, schema: str, detour: Detour) -> Iterator[None]:
    """Let this process, and those that it starts, find the queue by a login; forget it at the end.

    What the environment said of a database before is dropped for good: libpq would fill with it what the Secret leaves
    out. Raises Failed when the database's host cannot be reached.
    """
    host, port = _text(login, "host"), _text(login, "port") or PORT
    at = str(detour.port or port.partition(",")[0])
    places: dict[str, str] = {}
    if detour.host is not None:
        # Only the address is another one: the certificate is still that of the host that the Secret names.
        hint = "is that where `kubectl port-forward` listens, and does it still run?"
        places["PGHOSTADDR"] = _reach([detour.host], at, hint=hint)
        host = host.partition(",")[0]
    elif not host.startswith("/"):
        hosts = host.split(",")
        _reach(hosts, at, hint=remedy(hosts[0], at, login.namespace), of=f"Secret {login.secret}: ")
    for name in [n for n in os.environ if n.startswith("PG") or n in {"JOBQUEUE_DSN", "JOBQUEUE_DSN_DIR"}]:
        del os.environ[name]
    files = {**login.values, "host": host.encode(), "port": at.encode()}
    with _ending_by_signals(), tempfile.TemporaryDirectory(prefix="kubectl-jobqueue-") as folder:
        for key, value in files.items():
            descriptor = os.open(Path(folder, key), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(value)
        os.environ |= {**places, "JOBQUEUE_DSN_DIR": folder, "JOBQUEUE_SCHEMA": schema}
        yield


def _text(login: Login, key: str) -> str:
    try:
        return login.values.get(key, b"").decode().strip()
    except UnicodeDecodeError:
        raise Refused(f"Secret {login.secret}: its {key} is not UTF-8 text", hint="write it anew") from None


def _reach(hosts: Sequence[str], port: str, *, hint: str, of: str = "") -> str:
    """Return the address at which one of the hosts answers. Raises Failed."""
    said = ""
    for host in hosts:
        try:
            with socket.create_connection((host, int(port)), timeout=REACHED_WITHIN) as connection:
                address: str = connection.getpeername()[0]
                return address
        except (OSError, ValueError, OverflowError) as error:
            said = getattr(error, "strerror", None) or str(error)
    where = f"{','.join(hosts)}:{port}"
    raise Failed(f"{of}the database at {where} cannot be reached from here: {said}", hint=hint)


@contextmanager
def _ending_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the command as an exception does, so that the login is removed."""
    before = {number: signal.signal(number, _end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _frame: Any) -> NoReturn:
    raise SystemExit(128 + number)
