"""Where one run has its database and its files."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobqueue import connect
from jobqueue.errors import ConfigurationError
from jobqueue_operator.up.embedded import EmbeddedPostgres

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import psycopg

    from jobqueue_operator.up.report import Reporter


@dataclass(frozen=True, slots=True)
class Place:
    """Where the queue is: for us, and as variables for the workers."""

    info: connect.ConnInfo
    listen: connect.ConnInfo
    """A direct address for LISTEN; the same one unless another was given."""
    environment: Mapping[str, str]

    async def open_listener(self) -> psycopg.AsyncConnection[Any]:
        """Open a connection for LISTEN. Raises ConnectionFailed."""
        return await connect.open_async(self.listen, application_name="jobqueue up listen")


@contextmanager
def alone(state: Path) -> Iterator[None]:
    """Hold the state directory for this process. ConfigurationError when another one has it."""
    with (state / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigurationError(
                f"another `jobqueue up` uses {state}; stop it, or give this one its own --state-dir"
            ) from None
        yield


@contextmanager
def place(
    reporter: Reporter, *, dsn: str | None, dsn_dir: Path | None, listen_dsn: str | None, schema: str, state: Path
) -> Iterator[Place]:
    """Find the database; start a server of our own, with its data in `state`, when none is named."""
    environment = {"JOBQUEUE_SCHEMA": schema}
    listen = None
    if listen_dsn:
        listen = connect.resolve(listen_dsn, directory=None)
        environment["JOBQUEUE_LISTEN_DSN"] = listen_dsn
    if dsn is None and dsn_dir is None:
        dsn = os.environ.get("JOBQUEUE_DSN")
        dsn_dir = Path(os.environ["JOBQUEUE_DSN_DIR"]) if "JOBQUEUE_DSN_DIR" in os.environ else None
    if dsn:
        info = connect.resolve(dsn, directory=None)
        yield Place(info, listen or info, {**environment, "JOBQUEUE_DSN": dsn})
        return
    if dsn_dir:
        # Not its content: a worker reads the files again whenever it connects, so that a password can be changed.
        info = connect.resolve(None, directory=dsn_dir)
        yield Place(info, listen or info, {**environment, "JOBQUEUE_DSN_DIR": str(dsn_dir.absolute())})
        return
    server = EmbeddedPostgres(state / "postgres")
    try:
        dsn = server.start()
        reporter.say("info", f"embedded PostgreSQL; for other commands: export JOBQUEUE_DSN='{dsn}'", dsn=dsn)
        info = connect.resolve(dsn, directory=None)
        yield Place(info, listen or info, {**environment, "JOBQUEUE_DSN": dsn})
    finally:
        server.stop()
