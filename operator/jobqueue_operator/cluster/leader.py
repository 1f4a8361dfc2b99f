"""One of several operators acts: the one that holds the Lease. Who loses it ends at once."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any

from kubernetes.aio.client import V1Lease, V1ObjectMeta
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kubernetes.aio.client import ApiClient

log = logging.getLogger(__name__)

LEASE = 15
"""Seconds that a Lease holds without a renewal."""
RENEW_WITHIN = 10
"""Seconds within which it must have been renewed; five less than others wait."""
RETRY = 2
CALL = 4.0
"""Seconds that one request may take: the library sets no bound of its own."""


class _BoundedLock(LeaseLock):
    """The library's lock, with a deadline on each call; what goes wrong is a try that failed."""

    tried: Callable[[], None] = staticmethod(lambda: None)

    async def get(self, name: str, namespace: str) -> Any:
        """Read the Lease."""
        self.tried()
        try:
            async with asyncio.timeout(CALL):
                return await super().get(name, namespace)
        except Exception as error:  # noqa: BLE001 - whatever it is, this try failed, and the next may not
            return False, ApiException(status=0, reason=str(error) or type(error).__name__)

    async def create(self, name: str, namespace: str, election_record: Any) -> bool:
        """Make the Lease."""
        return await self._bounded(self._create(name, namespace, election_record))

    async def _create(self, name: str, namespace: str, election_record: Any) -> bool:
        # The library's own passes an argument that its client refuses.
        lease = V1Lease(metadata=V1ObjectMeta(name=name), spec=self.update_lease(election_record))
        await self.api_instance.create_namespaced_lease(namespace, lease)
        return True

    async def update(self, name: str, namespace: str, updated_record: Any) -> bool:
        """Renew the Lease, or take it over."""
        return await self._bounded(super().update(name, namespace, updated_record))

    async def _bounded(self, call: Coroutine[Any, Any, bool]) -> bool:
        try:
            async with asyncio.timeout(CALL):
                return await call
        except Exception as error:  # noqa: BLE001 - as above
            log.warning("the Lease was not written: %s", str(error) or type(error).__name__)
            return False


async def lead(
    client: ApiClient,
    *,
    namespace: str,
    name: str,
    identity: str,
    act: Callable[[], Coroutine[Any, Any, None]],
    tried: Callable[[], None],
) -> None:
    """Wait for the Lease, then run `act` while it is held; return when that returns, and give the Lease up.

    Losing it ends this process on the spot, whatever it is doing: another one may act from that moment on. `tried` is
    called at each try, for liveness.
    """
    logging.getLogger("kubernetes.aio.leaderelection").setLevel(logging.CRITICAL)
    lock = _BoundedLock(name, namespace, identity, client)
    lock.tried = tried
    done = asyncio.Event()

    async def started() -> None:
        log.info("holding Lease %s/%s as %s: acting", namespace, name, identity)
        try:
            await act()
        finally:
            done.set()

    async def lost() -> None:
        log.critical("Lease %s/%s was lost: ending at once", namespace, name)
        os._exit(1)

    log.info("waiting for Lease %s/%s as %s", namespace, name, identity)
    election = LeaderElection(Config(lock, LEASE, RENEW_WITHIN, RETRY, started, lost))
    running = asyncio.create_task(election.run(), name="lease")
    waiting = asyncio.create_task(done.wait())
    try:
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (running, waiting):
            task.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
        if done.is_set():
            await _give_up(lock)


async def _give_up(lock: LeaseLock) -> None:
    try:
        async with asyncio.timeout(CALL):
            lease = await lock.api_instance.read_namespaced_lease(lock.name, lock.namespace)
            if lease.spec is None or lease.spec.holder_identity != lock.identity:
                return
            lease.spec.holder_identity = ""
            await lock.api_instance.replace_namespaced_lease(lock.name, lock.namespace, lease)
    except Exception as error:  # noqa: BLE001 - on the way out there is nobody to tell
        log.warning("the Lease was not given up, and runs out by itself: %s", str(error) or type(error).__name__)
