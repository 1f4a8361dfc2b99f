"""A worker's place in the queue: its name, its admission, its end."""

from __future__ import annotations

import asyncio
import os
import platform
import random
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from jobqueue import queue
from jobqueue.errors import SchemaError
from jobqueue.worker.link import LinkDownError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from jobqueue.worker.link import Link
    from jobqueue.worker.settings import WorkerSettings

log = structlog.get_logger("jobqueue.worker")

RETRY = 1.0  # seconds between two requests for admission


def process_name(settings: WorkerSettings) -> str:
    """Name this process so that no other one ever has the name: a host's name comes back after a reboot.

    `<worker name or host>/<boot id>-<random>`; each runner adds its number.
    """
    boot = ""
    path = Path("/proc/sys/kernel/random/boot_id")
    if path.exists():
        boot = path.read_text().strip()[:8]
    return f"{settings.worker_name or platform.node() or 'worker'}/{boot}-{secrets.token_hex(4)}"


class Membership:
    """Registers one runner after the other under this process's name."""

    def __init__(self, link: Link, settings: WorkerSettings, *, rng: random.Random | None = None) -> None:
        self._link = link
        self._settings = settings
        self._name = process_name(settings)
        self._number = 0
        self._slots = settings.concurrency or 1  # the class's is known only once it has answered
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing

    def next(self) -> None:
        """Begin with a runner that has not been registered yet."""
        self._number += 1

    async def admitted(self, kinds: Sequence[tuple[str, int]] = ()) -> queue.Registered:
        """Register until the queue admits the worker under its downstream's limit.

        Raises UnknownClass, CapacityConflict and other QueueErrors: asking again would not help.
        """
        said = False
        while True:
            registered = await self._register(kinds)
            if self._slots != (slots := self._settings.concurrency or registered.settings["concurrency"]):
                self._slots = slots
                continue
            if registered.admitted:
                return registered
            if not said:
                said = True
                log.info(
                    "waiting for admission: the downstream has no units left for another worker",
                    downstream=registered.settings.get("downstream"),
                    units=registered.settings.get("units_per_pod"),
                )
            await asyncio.sleep(RETRY * self._rng.uniform(0.5, 1.5))

    async def _register(self, kinds: Sequence[tuple[str, int]]) -> queue.Registered:
        info: dict[str, Any] = {
            "name": self._settings.worker_name,
            "host": platform.node(),
            "pid": os.getpid(),
            "app": self._settings.app,
            "namespace": self._settings.namespace,
            "queue": self._settings.queue,
            "generation": self._settings.generation,
        }
        return await self._link.call_again(
            queue.register_worker,
            f"{self._name}-{self._number}",
            self._settings.class_name,
            list(kinds),
            slots=self._slots,
            info=info,
            schema=self._settings.schema_name,
        )

    async def understand(self, worker: int, kinds: Sequence[tuple[str, int]]) -> None:
        """Say what the imported app runs."""
        await self._link.call_again(
            queue.understand, worker, [(kind, version) for kind, version in kinds], schema=self._settings.schema_name
        )

    async def forget(self, worker: int) -> int | None:
        """End a registration; returns how many jobs were lost with it, None when that is not known."""
        try:
            return await self._link.call_again(queue.forget_worker, worker, schema=self._settings.schema_name)
        except LinkDownError:
            return None


async def check_rights(connection: psycopg.AsyncConnection[Any], schema: str) -> None:
    """Raise SchemaError when this login may not be a worker: waiting would not mend it."""
    cursor = await connection.execute(
        "SELECT has_function_privilege(format('%%I.heartbeat(bigint)', %s::text), 'EXECUTE')", [schema]
    )
    row = await cursor.fetchone()
    if row is not None and not row[0]:
        raise SchemaError(
            f"user {connection.info.user!r} may not run workers in schema {schema!r}; grant it the queue's worker role "
            "(jobqueue_worker, unless it was migrated with another --role-prefix)"
        )
