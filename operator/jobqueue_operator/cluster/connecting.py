"""From a JobQueue's Secrets to its database: one link a database, however many JobQueues use it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobqueue_operator.cluster import login
from jobqueue_operator.cluster.links import Address, Failure, Link, Place
from jobqueue_operator.cluster.login import LoginRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from jobqueue_operator.cluster.secrets import Secrets
    from jobqueue_operator.cluster.settings import OperatorSettings
    from jobqueue_operator.cluster.store import Key
    from jobqueue_operator.cluster.work import Work

LOOKED_UP = 60.0
"""Seconds that the addresses of a host are used for."""


@dataclass(slots=True)
class Connecting:
    """Keeps the links."""

    secrets: Secrets
    settings: OperatorSettings
    folder: Path
    ring: Callable[[], None]
    links: dict[Place, Link] = field(default_factory=dict)
    _addresses: dict[Key, tuple[float, Address]] = field(default_factory=dict)

    async def connect(self, work: Work) -> None:
        """Find a JobQueue's link, or say why there is none."""
        if work.queue is None or work.queue.spec.database is None:
            return
        database = work.queue.spec.database
        namespace = work.key[0]
        try:
            operator = await self._address((namespace, database.operator_secret_ref.name))
            listen = operator
            if database.listen_secret_ref is not None:
                listen = await self._address((namespace, database.listen_secret_ref.name))
        except LoginRefused as error:
            work.refusal = Failure("SecretRefused", str(error))
            return
        found = Place(operator.login.host, operator.login.port, operator.login.dbname, database.schema_)
        link = self.links.get(found)
        if link is None:
            link = self.links[found] = Link(
                found,
                holder=f"operator@{self.settings.identity}",
                folder=self.folder,
                may_migrate=self.settings.migrate,
                ring=self.ring,
            )
        link.use(operator, listen)
        work.link = link

    async def close_unused(self, works: Iterable[Work]) -> None:
        """Close the links that no JobQueue uses, and forget the Secrets that none names."""
        used = {work.link.place for work in works if work.link is not None}
        # A JobQueue whose Secret cannot be read now may have the link again in the next round.
        waiting = any(work.refusal is not None for work in works)
        for place in list(self.links.keys() - used):
            if not waiting:
                await self.links.pop(place).close()

    async def _address(self, secret: Key) -> Address:
        data = await self.secrets.read(*secret)
        found = login.read(data, secret=secret[1])
        until, known = self._addresses.get(secret, (0.0, None))
        now = time.monotonic()
        if known is not None and known.login == found and now < until:
            return known
        try:
            listed = await login.addresses(found, secret=secret[1], allowed=self.settings.allowed_hosts)
        except LoginRefused:
            # A name server that does not answer takes no database away that could be found a minute ago.
            if known is not None and known.login == found and now < until + 10 * LOOKED_UP:
                return known
            raise
        address = Address(found, tuple(listed))
        self._addresses[secret] = now + LOOKED_UP, address
        return address
