"""Every setting of a worker, with its unit and default; the command line and the environment fill these."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from jobqueue import environment

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]

DEFAULT_SOCKET = Path("/tmp/jobqueue-drain.sock")  # noqa: S108 - the socket is made with mode 0600


class WorkerSettings(BaseSettings):
    """What `jobqueue worker` runs with. Each field is also the variable JOBQUEUE_<FIELD>, in capitals."""

    model_config = SettingsConfigDict(
        env_prefix="JOBQUEUE_", populate_by_name=True, extra="forbid", frozen=True, env_ignore_empty=True
    )

    app: str = Field(description="Where the App is: `package.module:attribute`. Required.")
    class_name: str = Field(
        validation_alias=AliasChoices("class_name", "class", "JOBQUEUE_CLASS"),
        description="The job class this worker runs. Required.",
    )
    concurrency: int | None = Field(
        default=None, ge=1, le=10_000, description="Slots: jobs at a time. Default: the class's concurrency."
    )
    prefetch: int = Field(
        default=1000,
        ge=0,
        le=10_000,
        description="Most jobs claimed ahead of a free slot. Adapts below it: slow handlers prefetch none.",
    )

    dsn: SecretStr | None = Field(
        default=None,
        description="The database: a libpq URL or key=value string. Default: libpq's variables.",
    )
    dsn_dir: Path | None = Field(
        default=None,
        description="A folder of files host, port, dbname, user, password, sslmode, sslrootcert; read again "
        "at every connect.",
    )
    listen_dsn: SecretStr | None = Field(
        default=None,
        description="A direct address for LISTEN, when --dsn is a pooler. Default: --dsn.",
    )
    listen_dsn_dir: Path | None = Field(
        default=None,
        description="The direct address for LISTEN as a folder of files, like --dsn-dir. Default: --listen-dsn.",
    )
    schema_name: str = Field(
        default="jobqueue",
        validation_alias=AliasChoices("schema_name", "JOBQUEUE_SCHEMA"),
        description="The schema the queue was migrated into.",
    )

    wakeup: Literal["notify", "polling", "rabbitmq"] = Field(
        default="notify", description="What wakes an idle worker before its next poll."
    )
    broker_url: SecretStr | None = Field(
        default=None,
        description="RabbitMQ's AMQP URL, or the path of a file with it (wakeup=rabbitmq).",
    )
    poll_interval: Positive = Field(
        default=2.0, description="Seconds between two looks for work when nothing wakes the worker."
    )

    heartbeat: Positive | None = Field(
        default=None,
        description="Seconds between two renewals of the leases held; at most a third of the lease. Default: a "
        "quarter of the lease, at most 5.",
    )
    drain_timeout: float | None = Field(
        default=None,
        ge=0,
        description="Seconds that running jobs get to finish on SIGTERM or `jobqueue drain`. Default: the "
        "class's timeout plus 5.",
    )
    drain_socket: Path | None = Field(default=DEFAULT_SOCKET, description="Unix socket that `jobqueue drain` talks to.")
    health_port: int | None = Field(
        default=None,
        ge=0,
        le=65_535,
        description="Port for /live, /ready, /progress and /metrics on all addresses. 0 takes a free one. "
        "Default: off.",
    )

    worker_name: str | None = Field(
        default=None,
        max_length=150,
        description="Names this process in the queue: a pod's UID. Default: the host's name.",
    )
    generation: int | None = Field(
        default=None, description="Which generation of its manifest this worker was started for; told to the queue."
    )
    namespace: str = Field(default="", max_length=63, description="The label `namespace` on metrics.")
    queue: str = Field(default="", max_length=63, description="The label `queue` on metrics.")

    max_jobs: int | None = Field(
        default=None, ge=1, description="Replace the runner process after this many jobs. Default: never."
    )
    max_memory: int | None = Field(
        default=None, ge=16, description="Replace the runner above this many MiB resident. Default: never."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe log line that is written."
    )
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="auto writes JSON unless standard error is a terminal."
    )
    log_jobs: bool = Field(
        default=False, description="One line for each claim and success too; failures always have one."
    )

    @field_validator("app")
    @classmethod
    def _names_an_attribute(cls, value: str) -> str:
        module, colon, attribute = value.partition(":")
        if not (module and colon and attribute):
            raise ValueError("must be package.module:attribute, like shop.jobs:app")
        return value


def load(**given: Any) -> WorkerSettings:
    """Read settings: `given` (None: not given) over the environment over the defaults.

    Raises ConfigurationError naming every wrong field; shows no value, which may be a password.
    """
    return environment.read(WorkerSettings, given, what="worker")
