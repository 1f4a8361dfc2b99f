"""From a JobQueue's Secrets to its database: one link a database, however many JobQueues use it.

A link is opened by one login, that of the oldest JobQueue on the database. Another has to have the same user and
password: otherwise whoever knows where a database is could have it operated with somebody else's, or break that link.
"""

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

    from jobqueue_operator.cluster.login import Login
    from jobqueue_operator.cluster.secrets import Secrets
    from jobqueue_operator.cluster.settings import OperatorSettings
    from jobqueue_operator.cluster.store import Key
    from jobqueue_operator.cluster.work import Work

LOOKED_UP = 60.0
"""Seconds that the addresses of a host are used for."""


@dataclass(frozen=True, slots=True)
class _Owner:
    """The JobQueue whose login a link is opened by."""

    created_at: float
    key: Key
    login: Login

    def admits(self, login: Login) -> bool:
        """Whether another login is as good as this one."""
        return (login.user, login.password) == (self.login.user, self.login.password)

    def refusal(self) -> Failure:
        """Say so to whoever has another one."""
        message = (
            f"JobQueue {'/'.join(self.key)} uses this database with another user or password; give both JobQueues the "
            "same, or use another database or database.schema"
        )
        return Failure("LoginDiffers", message)


@dataclass(slots=True)
class Connecting:
    """Keeps the links."""

    secrets: Secrets
    settings: OperatorSettings
    folder: Path
    ring: Callable[[], None]
    links: dict[Place, Link] = field(default_factory=dict)
    _owners: dict[Place, _Owner] = field(default_factory=dict)
    _connected: dict[Key, Work] = field(default_factory=dict)
    """Those of this round, as far as they have a link."""
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
        place = Place(operator.login.host, operator.login.port, operator.login.dbname, database.schema_)
        mine = _Owner(work.known.created_at, work.key, operator.login)
        owner = self._owners.get(place, mine)
        if (owner.created_at, owner.key) < (mine.created_at, mine.key):
            if not owner.admits(operator.login):
                work.refusal = owner.refusal()
                return
        else:
            self._owners[place] = mine
            if owner.key != mine.key and not mine.admits(owner.login):
                await self._take(place, mine)
            self._link(place).use(operator, listen)
        work.link = self._link(place)
        self._connected[work.key] = work

    async def close_unused(self, works: Iterable[Work]) -> None:
        """Close the links that no JobQueue uses, and forget the Secrets that none names. The end of a round."""
        works = list(works)
        users: dict[Place, list[Work]] = {}
        for work in works:
            if work.link is not None and work.queue is not None:
                users.setdefault(work.link.place, []).append(work)
        # A JobQueue whose Secret cannot be read now may have the link again in the next round.
        waiting = {work.key for work in works if work.refusal is not None}
        for place, owner in list(self._owners.items()):
            heirs = sorted((work.known.created_at, work.key) for work in users.get(place, ()))
            if owner.key in waiting or any(key == owner.key for _, key in heirs):
                continue
            del self._owners[place]
            if heirs:
                self._owners[place] = _Owner(*heirs[0], owner.login)
        for place in self.links.keys() - self._owners.keys():
            await self.links.pop(place).close()
        named = {secret for work in works for secret in _secrets(work)}
        self.secrets.forget(named)
        self._addresses = {secret: known for secret, known in self._addresses.items() if secret in named}
        self._connected = {}

    def _link(self, place: Place) -> Link:
        link = self.links.get(place)
        if link is None:
            link = self.links[place] = Link(
                place,
                holder=f"operator@{self.settings.identity}",
                folder=self.folder,
                may_migrate=self.settings.migrate,
                ring=self.ring,
            )
        return link

    async def _take(self, place: Place, mine: _Owner) -> None:
        """End a link that a younger JobQueue opened by a login of its own."""
        link = self.links.pop(place, None)
        for work in self._connected.values():
            if link is not None and work.link is link:
                work.link, work.refusal = None, mine.refusal()
        if link is not None:
            await link.close()

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


def _secrets(work: Work) -> list[Key]:
    """Return the Secrets that a JobQueue has the operator read."""
    database = work.queue.spec.database if work.queue is not None else None
    if database is None:
        return []
    refs = (database.operator_secret_ref, database.listen_secret_ref)
    return [(work.key[0], ref.name) for ref in refs if ref is not None]
