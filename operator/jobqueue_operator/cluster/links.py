"""One database: two connections at most, what was seen there last, and what was written there."""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jobqueue import connect
from jobqueue.errors import MESSAGE_MOST, ConnectionFailed, JobQueueError, SchemaError, StaleEpoch
from jobqueue_operator import observe
from jobqueue_operator.planner.facts import Facts
from jobqueue_operator.queues.allowance import AnswerTooLarge
from jobqueue_operator.queues.capped import Listening
from jobqueue_operator.queues.database import Database
from jobqueue_operator.queues.gather import LeadershipLost, Sight, check_lead
from jobqueue_operator.queues.remembering import Memories
from jobqueue_operator.queues.upkeep import Upkeep
from jobqueue_operator.queues.waking import Doorbell, Waker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import psycopg

    from jobqueue.signals import Snapshot
    from jobqueue_operator.cluster.login import Login
    from jobqueue_operator.planner.plan import Plan
    from jobqueue_operator.planner.wanted import Wanted

LEEWAY = 0.2
"""Seconds by which a look may be early: rounds do not begin to the millisecond."""
LOOK_AGAIN = 60.0
"""Seconds after which a database is looked at again that sent too much."""
RINGING_MOST = 3_600.0
"""Seconds after which a bell that never rang is looked at all the same."""
LEAD_AGAIN = 30.0
"""Seconds after which a database is tried again that could not be led."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A queue's database. Two JobQueues with the same one share a link."""

    host: str
    port: int
    dbname: str
    schema: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.dbname}/{self.schema}"


@dataclass(frozen=True, slots=True)
class Address:
    """How to connect: a login, and the addresses that its host was found to stand for."""

    login: Login
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a database cannot be used now: a stable reason, and a message."""

    reason: str
    message: str


@dataclass(slots=True)
class Link:
    """Looks at one database and writes to it, under this process's leadership."""

    place: Place
    holder: str
    folder: Path
    """For certificates."""
    may_migrate: bool
    ring: Callable[[], None]
    """Called when jobs came that nobody but the operator was waiting for."""
    database: Database = field(init=False)
    waker: Waker = field(init=False)
    bell: Doorbell = field(init=False)
    memories: Memories = field(init=False)
    snapshot: Snapshot | None = None
    """None while it cannot be read."""
    facts: Facts = field(default_factory=lambda: Facts(visible=False))
    """Those of the snapshot, of all classes and no worker; only while there is one."""
    failure: Failure | None = None
    looked_at: float = float("-inf")
    """Monotonic seconds of the last try to look."""
    seen_at: float | None = None
    """Seconds since the epoch of the last time that something was seen."""
    restored: Plan | None = None
    """What was stored for the planner; until the first plan that has it."""
    _address: Address | None = None
    _listen: Address | None = None
    _settled: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _not_before: float = float("-inf")
    rang: bool = False
    """Whether it rang since the last look."""
    _ringing: asyncio.Task[None] | None = None
    _led_at: float = float("-inf")
    _lost: bool = False
    _upkeep: Upkeep = field(init=False)

    def __post_init__(self) -> None:
        self.database = Database(connect.ConnInfo("", None), self.place.schema, holder=self.holder)
        self.bell = Doorbell(self._open_for_listening, schema=self.place.schema)
        self.waker = Waker(self.database, self.bell)
        self.memories = Memories(self.database)
        self._upkeep = Upkeep(self.database)

    def use(self, address: Address, listen: Address) -> None:
        """Connect so from now on; what is open stays open until it breaks, unless the login changed."""
        if address != self._address:
            self.database.use(connect.ConnInfo(self._conninfo(address), None))
        self._address, self._listen = address, listen

    async def look(self, *, tick: float) -> None:
        """Lead the database if need be, and look. Says in `failure` what is wrong; never raises for it."""
        now = self.looked_at = time.monotonic()
        self.rang = False
        if now < self._not_before:
            return
        try:
            if self.database.epoch is None or self._lost:
                if now - self._led_at < (LEAD_AGAIN if self._lost else 0.0):
                    return
                await self._lead()
            self.snapshot = await self.database.snapshot(tick=tick)
            check_lead(self.database.epoch, self.snapshot)
            self.facts = observe.facts(self.snapshot, ())
            self.failure, self.seen_at = None, time.time()
        except LeadershipLost as error:
            self.lose(str(error))
        except JobQueueError as error:
            self.snapshot, self.failure = None, _failure(error)
            if isinstance(error, AnswerTooLarge):
                self._not_before = now + LOOK_AGAIN

    async def settle(self, limits: Mapping[str, int], classes: Mapping[str, Mapping[str, Any]]) -> None:
        """Write what is not written yet: classes that changed, and limits of downstreams that are unknown there.

        Such a one begins with no unit: how many it gets is for a plan that knows all databases to say.
        Raises JobQueueError.
        """
        assert self.snapshot is not None  # noqa: S101 - only what is seen is written to
        known = {d.downstream for d in self.snapshot.downstreams}
        new = {name: units for name, units in limits.items() if name not in known}
        changed = {name: value for name, value in classes.items() if self._settled.get(name) != value}
        if new or changed:
            await self.database.settle(new, changed)
            self._settled.update(changed)

    async def after(self, wanted: Wanted, plan: Plan) -> None:
        """Do what follows a plan that was carried out: ask to be woken, remember, sweep. Raises JobQueueError.

        `wanted` and `plan` are those of this database, classes by their names.
        """
        if self.snapshot is None:
            return
        await self.waker.update(wanted, plan, Sight(self.facts, self.snapshot))
        await self.memories.keep(plan)
        await self._upkeep.run(time.monotonic())

    def lose(self, message: str) -> None:
        """Stop acting on this database: somebody else leads it now."""
        self._lost, self.snapshot = True, None
        self.failure = Failure(
            "LedByAnother", f"another operator has taken this database over: {message[:MESSAGE_MOST]}"
        )

    def due(self, now: float, tick: float) -> bool:
        """Whether to look now: a tick is over, or nearly; it rang; or a class at zero wants an earlier look."""
        return self.rang or now - self.looked_at >= min(tick, self.waker.look_within) - LEEWAY

    async def close(self) -> None:
        """Close both connections."""
        if self._ringing is not None:
            self._ringing.cancel()
        await self.waker.stop(leading=not self._lost and self.snapshot is not None)
        await self.database.close()

    async def _lead(self) -> None:
        self._led_at = time.monotonic()
        await self.database.lead(may_migrate=self.may_migrate)
        self._lost, self._settled = False, {}
        if self._ringing is None:
            await self.waker.start()
            self._ringing = asyncio.create_task(self._ring(), name=f"listen {self.place}")
        found = await self.database.snapshot(tick=5.0)
        self.restored = self.memories.restore(found)

    async def _ring(self) -> None:
        while True:
            await self.bell.wait(RINGING_MOST)
            self.rang = True
            self.ring()

    async def _open_for_listening(self) -> psycopg.AsyncConnection[Any]:
        if self._listen is None:
            raise ConnectionFailed("no login yet")
        return await connect.open_async_as(Listening, connect.ConnInfo(self._conninfo(self._listen), None))

    def _conninfo(self, address: Address) -> str:
        certificate = None
        if address.login.sslrootcert:
            text = address.login.sslrootcert
            file = self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.pem"
            file.write_text(text)
            certificate = str(file)
        return address.login.conninfo(address.addresses, certificate)


def _failure(error: JobQueueError) -> Failure:
    said = str(error)[:MESSAGE_MOST]
    if isinstance(error, SchemaError):
        return Failure("SchemaNotReady", said)
    if isinstance(error, StaleEpoch):
        return Failure("LedByAnother", said)
    if isinstance(error, AnswerTooLarge):
        return Failure("AnswerTooLarge", said)
    if isinstance(error, ConnectionFailed):
        return Failure("Unreachable" if error.retry_helps else "LoginFailed", said)
    return Failure("QueueRefused", said)
