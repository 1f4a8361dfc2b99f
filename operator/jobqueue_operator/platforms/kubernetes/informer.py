"""What objects there are, kept current by list and watch; a watch that breaks or falls silent begins anew."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING

from jobqueue_operator.platforms.kubernetes.api import ApiError, drop_unread

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jobqueue_operator.platforms.kubernetes.api import Api, Kind, Object

log = logging.getLogger(__name__)

PAUSE_LEAST, PAUSE_MOST = 0.2, 30.0
"""Seconds between two tries, doubled each time."""
STEADY = 5.0
"""Seconds after which a watch counts as one that works, so that the next pause is the least again."""
_GONE = 410

Key = tuple[str, str]
"""Namespace and name."""


class Informer:
    """The objects of one kind in one namespace, or in all (None)."""

    def __init__(self, api: Api, kind: Kind, namespace: str | None, *, labels: str = "") -> None:
        self._api = api
        self._kind = kind
        self.namespace = namespace
        self._labels = labels
        self._task: asyncio.Task[None] | None = None
        self._told = 0
        """The latest version that the server's list or watch has reached."""
        self.objects: dict[Key, Object] = {}
        self.synced = asyncio.Event()
        """Set once everything was listed."""
        self.broken_since: float | None = None
        """Monotonic seconds since when it has not been able to look; None while it can."""

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._run(), name=f"watch {self._kind.plural}")

    async def stop(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def note(self, thing: Object) -> None:
        """Take an object as an answer to our own request showed it, which the watch may be late to say."""
        # What the watch has gone past it has told already; the object may have been deleted since.
        key, version = _key(thing), version_of(thing)
        if version > self._told and (key not in self.objects or version > version_of(self.objects[key])):
            self.objects[key] = drop_unread(thing)

    async def _run(self) -> None:
        pause, version = PAUSE_LEAST, ""
        while True:
            began = time.monotonic()
            try:
                if not version:
                    version = await self._list()
                began = time.monotonic()
                version = await self._watch(version)
            except ApiError as error:
                version = ""
                if self.broken_since is None and error.status != _GONE:
                    self.broken_since = time.monotonic()
                    log.warning("%s cannot be watched: %s", self._kind.plural, error)
            except Exception:
                version = ""
                log.exception("%s: what was listed or watched cannot be read; it is listed anew", self._kind.plural)
            # One that ends at once, for whatever reason, is not begun again at once.
            pause = PAUSE_LEAST if time.monotonic() - began >= STEADY else pause
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spread, not secrecy
            pause = min(2 * pause, PAUSE_MOST)

    async def _list(self) -> str:
        listed, version = await self._api.list(self._kind, self.namespace, labels=self._labels)
        self.objects = {_key(thing): drop_unread(thing) for thing in listed}
        self.synced.set()
        if self.broken_since is not None:
            log.info("%s can be watched again", self._kind.plural)
            self.broken_since = None
        self._told = _number(version)
        return version

    async def _watch(self, version: str) -> str:
        """Watch until the server ends it; return the resource version to go on from."""
        async for kind, thing in self._api.watch(self._kind, self.namespace, version, labels=self._labels):
            version = thing["metadata"]["resourceVersion"]
            self._told = _number(version)
            if kind == "BOOKMARK":
                continue
            key = _key(thing)
            # Our own request may have been answered before the watch said so, and with a later version.
            if key in self.objects and version_of(self.objects[key]) > self._told:
                continue
            if kind == "DELETED":
                self.objects.pop(key, None)
            else:
                self.objects[key] = drop_unread(thing)
        return version


class Informers:
    """One kind in several namespaces, seen as one."""

    def __init__(self, each: Iterable[Informer]) -> None:
        self._each = list(each)

    def start(self) -> None:
        """Begin to look."""
        for informer in self._each:
            informer.start()

    async def stop(self) -> None:
        """Stop looking."""
        await asyncio.gather(*(informer.stop() for informer in self._each))

    async def synced(self) -> None:
        """Return once everything was listed."""
        await asyncio.gather(*(informer.synced.wait() for informer in self._each))

    def note(self, thing: Object) -> None:
        """Take an object as an answer to our own request showed it, which the watch may be late to say."""
        for informer in self._each:
            if informer.namespace in {None, thing["metadata"].get("namespace", "")}:
                informer.note(thing)

    def get(self, namespace: str, name: str) -> Object | None:
        """Return an object, or None."""
        return next((i.objects[namespace, name] for i in self._each if (namespace, name) in i.objects), None)

    def all(self) -> list[Object]:
        """Return every object."""
        return [thing for informer in self._each for thing in informer.objects.values()]


def _key(thing: Object) -> Key:
    return thing["metadata"].get("namespace", ""), thing["metadata"]["name"]


def version_of(thing: Object) -> int:
    """Return its resource version."""
    return _number(thing["metadata"].get("resourceVersion", ""))


def _number(version: str) -> int:
    # The server's clients may compare versions of one resource since Kubernetes 1.35; before, they grew as well.
    return int(version) if version.isdecimal() else 0
