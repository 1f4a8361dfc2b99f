"""`jobqueue relay`: the relay as a process, with settings, metrics and an orderly end on SIGTERM."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from pydantic import AliasChoices, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from jobqueue import connect, environment
from jobqueue.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from jobqueue.wakeup.relay import Relay


class RelaySettings(BaseSettings):
    """What `jobqueue relay` runs with. Each field is also the variable JOBQUEUE_<FIELD>, in capitals."""

    model_config = SettingsConfigDict(
        env_prefix="JOBQUEUE_", populate_by_name=True, extra="forbid", frozen=True, env_ignore_empty=True
    )

    broker_url: SecretStr = Field(description="RabbitMQ's AMQP URL, or the path of a file with it. Required.")
    classes: Annotated[tuple[str, ...], NoDecode] = Field(
        min_length=1, description="The job classes to announce; commas between them. Required."
    )
    dsn: SecretStr | None = Field(
        default=None, description="The database: a libpq URL or key=value string. Default: libpq's variables."
    )
    dsn_dir: Path | None = Field(
        default=None,
        description="A folder of files host, port, dbname, user, password, sslmode, sslrootcert; read again at every "
        "connect.",
    )
    listen_dsn: SecretStr | None = Field(
        default=None, description="A direct address for LISTEN, when --dsn is a pooler. Default: --dsn."
    )
    schema_name: str = Field(
        default="jobqueue",
        validation_alias=AliasChoices("schema_name", "JOBQUEUE_SCHEMA"),
        description="The schema the queue was migrated into.",
    )
    poll_interval: float = Field(
        default=1.0, gt=0, allow_inf_nan=False, description="Seconds between two looks when nothing announces work."
    )
    metrics_port: int | None = Field(
        default=None, ge=0, le=65_535, description="Port for /metrics on all addresses. Default: off."
    )
    namespace: str = Field(default="", max_length=63, description="The label `namespace` on metrics.")
    queue: str = Field(default="", max_length=63, description="The label `queue` on metrics.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe log line that is written."
    )
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="auto writes JSON unless standard error is a terminal."
    )

    @field_validator("classes", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value


def load(**given: Any) -> RelaySettings:
    """Read settings: `given` (None: not given) over the environment over the defaults.

    Raises ConfigurationError naming every wrong field; shows no value, which may be a password.
    """
    return environment.read(RelaySettings, given, what="relay")


def build(settings: RelaySettings) -> Relay:
    """Make the relay that the settings describe. Raises ConfigurationError, also for a missing extra."""
    try:
        from jobqueue.wakeup.relay import Pace, Relay  # noqa: PLC0415 - aio-pika is an extra
    except ModuleNotFoundError as error:
        install = "pip install 'jobqueue-operator[rabbitmq]'"
        raise ConfigurationError(f"the relay needs {error.name}: {install}") from error
    main = connect.resolve(_secret(settings.dsn), directory=settings.dsn_dir)
    listen = connect.resolve(_secret(settings.listen_dsn), directory=None) if settings.listen_dsn else main
    return Relay(
        lambda: connect.open_async(main, application_name="jobqueue relay"),
        settings.broker_url.get_secret_value(),
        classes=settings.classes,
        listen=lambda: connect.open_async(listen, application_name="jobqueue listen"),
        schema=settings.schema_name,
        pace=Pace(poll=settings.poll_interval),
    )


def main(settings: RelaySettings) -> None:
    """Relay until SIGTERM or SIGINT. Raises ConfigurationError; servers that are away are retried."""
    from jobqueue.worker import logs  # noqa: PLC0415 - the extra may be missing

    relay = build(settings)
    logs.configure(settings)
    asyncio.run(_run(relay, settings))


async def _run(relay: Relay, settings: RelaySettings) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    if settings.metrics_port is not None:
        registry = CollectorRegistry()
        registry.register(RelayCollector(relay, namespace=settings.namespace, queue=settings.queue))
        start_http_server(settings.metrics_port, registry=registry)
    await relay.start()
    await ended.wait()
    await relay.stop()


class RelayCollector(Collector):
    """What the relay did. Its lag is absent while it cannot look or cannot publish."""

    def __init__(self, relay: Relay, *, namespace: str, queue: str) -> None:
        self._relay = relay
        self._labels = (namespace, queue)

    def collect(self) -> Iterator[Metric]:
        """Yield the relay's metrics."""
        names = ("namespace", "queue")
        published = CounterMetricFamily("jobqueue_relay_published", "Messages that the broker confirmed.", labels=names)
        published.add_metric(self._labels, self._relay.published)
        failures = CounterMetricFamily(
            "jobqueue_relay_failures", "Connections that failed, of either end.", labels=names
        )
        failures.add_metric(self._labels, self._relay.failures)
        yield from (published, failures)
        if self._relay.relaying:
            text = "Age of the oldest job that the last look published."
            lag = GaugeMetricFamily("jobqueue_relay_lag_seconds", text, labels=names)
            lag.add_metric(self._labels, self._relay.lag)
            yield lag


def _secret(value: SecretStr | None) -> str | None:
    return value.get_secret_value() if value else None
