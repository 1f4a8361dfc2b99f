"""What a runner and its children need of the worker's settings: plain values, sent over their pipes.

Never in arguments or environment, as a DSN holds a password; and without pydantic-settings, which would cost each
child process a tenth of a second and five megabytes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import SecretStr

    from jobqueue.worker.settings import WorkerSettings


@dataclass(frozen=True, kw_only=True)
class Orders:
    """The fields are those of WorkerSettings, secrets in the clear."""

    app: str
    class_name: str
    prefetch: int
    dsn: str | None
    dsn_dir: str | None
    listen_dsn: str | None
    listen_dsn_dir: str | None
    schema_name: str
    wakeup: str
    broker_url: str | None
    poll_interval: float
    log_level: str
    log_format: str
    log_jobs: bool

    @classmethod
    def of(cls, settings: WorkerSettings) -> Orders:
        """Take them from the settings."""
        return cls(
            app=settings.app,
            class_name=settings.class_name,
            prefetch=settings.prefetch,
            dsn=_bare(settings.dsn),
            dsn_dir=_path(settings.dsn_dir),
            listen_dsn=_bare(settings.listen_dsn),
            listen_dsn_dir=_path(settings.listen_dsn_dir),
            schema_name=settings.schema_name,
            wakeup=settings.wakeup,
            broker_url=_bare(settings.broker_url),
            poll_interval=settings.poll_interval,
            log_level=settings.log_level,
            log_format=settings.log_format,
            log_jobs=settings.log_jobs,
        )

    def to_wire(self) -> dict[str, Any]:
        """Return them as JSON takes them."""
        return asdict(self)

    def __repr__(self) -> str:
        return f"<orders for {self.app} {self.class_name}>"


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _bare(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
