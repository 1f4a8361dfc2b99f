"""`jobs`: the queue's own command line, run with a login from the cluster."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

from jobqueue_operator.plugin import login
from jobqueue_operator.plugin.access import Cluster
from jobqueue_operator.plugin.refusals import Forbidden, NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobqueue_operator.plugin.options import Aim, Detour

ENDS_WITHIN = 10.0
"""Seconds that the command line has to end after a signal."""


def jobs(aim: Aim, name: str, arguments: Sequence[str], secret: str | None, detour: Detour) -> int:
    """Run `jobqueue` and return its exit status."""
    cluster = Cluster(aim)
    queue = cluster.job_queue(name)
    found = fetch(cluster, secret or support(name))
    with login.used(found, schema(queue), detour):
        return _run(arguments)


def support(name: str) -> str:
    """Return the name of the Secret with the support login of a JobQueue, unless another is said."""
    return f"{name}-queue-support"


def schema(queue: Mapping[str, Any]) -> str:
    """Return the schema of a JobQueue's queue."""
    return str(((queue.get("spec") or {}).get("database") or {}).get("schema") or "jobqueue")


def fetch(cluster: Cluster, secret: str) -> login.Login:
    """Read a login. Raises NotFound, Forbidden, and Refused when a key is missing."""
    try:
        data = cluster.secret(secret)
    except NotFound as error:
        raise NotFound(
            f"Secret {secret}: there is none in namespace {cluster.namespace}",
            hint="create it with a login that has the role jobqueue_support (docs/kubectl.md), or name another one "
            "with --secret",
        ) from error
    except Forbidden as error:
        raise Forbidden(f"Secret {secret}: you may not read it: {error}", hint=error.hint) from error
    return login.read(secret, cluster.namespace, data)


def _run(arguments: Sequence[str]) -> int:
    command = subprocess.Popen([sys.executable, "-m", "jobqueue", *arguments])  # noqa: S603 - what the user asks for
    try:
        while True:
            try:
                status = command.wait()
            except KeyboardInterrupt:
                continue  # it got the same signal, and says how it ends
            return status if status >= 0 else 128 - status
    finally:
        if command.poll() is None:
            command.terminate()
            try:
                command.wait(ENDS_WITHIN)
            except subprocess.TimeoutExpired:
                command.kill()
