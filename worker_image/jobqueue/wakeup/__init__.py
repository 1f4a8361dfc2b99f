"""Wake-up: how a sleeping worker learns of new work before its next poll.

Every kind polls underneath: `wait(timeout)` never takes longer than `timeout` seconds, whatever happened to
the listener or the broker, so that losing every wake-up costs latency and never work. A wake says «look»,
nothing more: the rows are loaded by a claim.

========== =================================================================================
polling    the timeout alone
notify     LISTEN on a connection of its own, probed for half-open sockets
rabbitmq   a consumer of `{"job_id": N}` messages (extra `rabbitmq`); `relay` publishes them
========== =================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, get_args

from jobqueue.errors import ConfigurationError
from jobqueue.wakeup.polling import PollingWakeup

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from jobqueue.wakeup.notify import Opener

__all__ = ["Kind", "Wakeup", "create"]

Kind = Literal["polling", "notify", "rabbitmq"]


class Wakeup(Protocol):
    """One start/stop contract for every kind. All calls belong to one event loop."""

    async def start(self) -> None:
        """Begin to listen in the background. An unreachable server is retried, never raised."""

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109 - a bound on sleeping, not on an operation
        """Return when woken, or after 75 to 100 % of `timeout` seconds: the jitter is applied here.

        A wake that came since the last `wait` returned is not lost: this one then returns at once.
        """

    def wake(self) -> None:
        """Make the current `wait`, or the next one, return at once."""

    async def stop(self) -> None:
        """Close connections and end tasks; wakes a `wait` under way. Idempotent and final; later waits only poll."""


def create(
    kind: str,
    *,
    classes: Collection[str] | None,
    on_cancel: Callable[[int], None] | None = None,
    schema: str = "jobqueue",
    connect: Opener | None = None,
    broker: str | Path | None = None,
) -> Wakeup:
    """Build, but do not start, the wake-up of `kind`: polling, notify or rabbitmq.

    `classes`: the job classes whose work wakes it; None means every class (notify only).
    `on_cancel`: called with a job id when its cancellation is announced (notify only). It is a hint, which
    anyone who may NOTIFY can forge: ask the database (`heartbeat`) before acting on it.
    `connect`: opens a connection for LISTEN, resolving credentials anew at each call; on a direct DSN when
    the main one goes through a pooler in transaction mode.
    `broker`: an AMQP URL, or the path of a file that holds one and is read again at each connect.

    Raises ConfigurationError for an unknown kind, a missing `connect` or `broker`, or a missing extra.
    """
    if kind == "polling":
        return PollingWakeup()
    if kind == "notify":
        from jobqueue.wakeup.notify import NotifyWakeup  # noqa: PLC0415 - polling needs no driver

        if connect is None:
            raise ConfigurationError("wake-up `notify` needs a database connection to LISTEN on")
        return NotifyWakeup(connect, classes=classes, on_cancel=on_cancel, schema=schema)
    if kind == "rabbitmq":
        if broker is None:
            raise ConfigurationError("wake-up `rabbitmq` needs the broker's URL: set --broker-url")
        if not classes:
            raise ConfigurationError("wake-up `rabbitmq` needs the names of the classes whose queues it consumes")
        try:
            from jobqueue.wakeup.rabbitmq import RabbitWakeup  # noqa: PLC0415 - aio-pika is an extra
        except ModuleNotFoundError as error:
            install = "pip install 'jobqueue-operator[rabbitmq]'"
            raise ConfigurationError(f"wake-up `rabbitmq` needs {error.name}: {install}") from error
        return RabbitWakeup(broker, classes=classes, schema=schema)
    raise ConfigurationError(f"unknown wake-up {kind!r}: use one of {', '.join(get_args(Kind))}")
