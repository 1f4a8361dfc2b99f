"""What Kopf is used for: hearing of manifests. Every event means the same: take note, and begin a round soon."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import kopf

from jobqueue_operator.platforms.kubernetes.api import DEADLINE, WATCH_SILENCE, WATCH_SPAN

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from pathlib import Path

    from jobqueue_operator.cluster.store import Store


def registry(
    queues: Store, capacities: Store, ring: Callable[[], None], *, kubeconfig: Path | None
) -> kopf.OperatorRegistry:
    """Return handlers that keep the stores current, and ring when what is asked for is news.

    Raw events alone: timers, daemons and change handlers would write finalizers and annotations into users' objects.
    """
    found = kopf.OperatorRegistry()

    def listen(store: Store) -> Callable[..., None]:
        def heard(type: str | None, event: kopf.RawEvent, **_: Any) -> None:  # noqa: A002 - Kopf calls it so
            thing = dict(event["object"])
            if type == "DELETED":
                store.drop(thing)
                ring()
            elif store.put(thing):
                ring()

        return heard

    kopf.on.event("jobqueue.dev", "v1alpha1", "jobqueues", registry=found)(listen(queues))
    kopf.on.event("jobqueue.dev", "v1alpha1", "downstreamcapacities", registry=found)(listen(capacities))

    @kopf.on.login(registry=found)
    def connect(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_kubeconfig(**kwargs) if kubeconfig is not None else log_in(**kwargs)

    return found


def log_in(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """Return how a pod connects to its API server; outside of a pod, how the user does."""
    found = kopf.login_with_service_account(**kwargs)
    if found is None:
        return kopf.login_with_kubeconfig(**kwargs)
    # Kopf's own address is a name. What every pod is told is a number, and needs no name server.
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    return dataclasses.replace(found, server=f"https://{f'[{host}]' if ':' in host else host}:{port}")


def settings() -> kopf.OperatorSettings:
    """Return Kopf's settings: watches that cannot die in silence, and nothing written into anybody's objects."""
    found = kopf.OperatorSettings()
    found.posting.enabled = False
    found.scanning.disabled = True
    found.peering.standalone = True
    found.watching.connect_timeout = DEADLINE
    found.watching.server_timeout = WATCH_SPAN
    found.watching.client_timeout = WATCH_SILENCE
    found.networking.request_timeout = DEADLINE
    return found


async def watch(
    registered: kopf.OperatorRegistry, places: tuple[str | None, ...], stopping: asyncio.Event, ready: asyncio.Event
) -> None:
    """Run Kopf until `stopping` is set; `ready` is set when it has begun."""
    namespaces = [place for place in places if place is not None]
    await kopf.operator(
        registry=registered,
        settings=settings(),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
        stop_flag=stopping,
        ready_flag=ready,
    )
