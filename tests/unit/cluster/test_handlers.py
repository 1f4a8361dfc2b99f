"""What Kopf is told to do, against an emulated API server: it hears, and it writes nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import kmock
import pytest
import yaml

from jobqueue_operator.cluster import handlers
from jobqueue_operator.cluster.store import Store
from services.operators import job_queue
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

PATH = "/apis/jobqueue.dev/v1alpha1/namespaces/shop/jobqueues"


@pytest.fixture
async def server() -> AsyncIterator[kmock.KubernetesEmulator]:
    async with kmock.KubernetesEmulator() as emulator, kmock.Server(emulator):
        for plural, kind in (("jobqueues", "JobQueue"), ("downstreamcapacities", "DownstreamCapacity")):
            emulator.resources[kmock.resource("jobqueue.dev/v1alpha1", plural)] = kmock.ResourceInfo(
                kind=kind, namespaced=True, verbs={"get", "list", "watch", "patch"}
            )
        # Kopf waits to hear of these, though it is told to scan for none.
        emulator.resources[kmock.resource("v1", "namespaces")] = kmock.ResourceInfo(
            kind="Namespace", namespaced=False, verbs={"list"}
        )
        yield emulator


async def until(condition: Callable[[], Any]) -> None:
    await asyncio.to_thread(eventually, condition)


async def test_what_is_made_changed_and_deleted_is_heard_and_nothing_is_written(
    server: kmock.KubernetesEmulator, tmp_path: Path
) -> None:
    config = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": str(server.url)}}],
        "users": [{"name": "x", "user": {"token": "t"}}],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    queues, capacities, rings = Store(), Store(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        registered = handlers.registry(queues, capacities, lambda: rings.append(1), kubeconfig=tmp_path / "kubeconfig")
        stopping, ready = asyncio.Event(), asyncio.Event()
        watching = asyncio.create_task(handlers.watch(registered, ("shop",), stopping, ready))
        await ready.wait()
        async with aiohttp.ClientSession(base_url=str(server.url)) as user:
            made = job_queue("shop")
            made["metadata"] |= {"namespace": "shop", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
            await user.post(PATH, json=made)
            await until(lambda: ("shop", "shop") in queues.known)
            assert queues.known["shop", "shop"].problems == ()
            await user.delete(f"{PATH}/shop")
            await until(lambda: not queues.known)
            assert [gone.key for gone in queues.take_gone()] == [("shop", "shop")]
        assert len(rings) == 2
        stopping.set()
        await watching
    by_kopf = {str(request.method.value) for request in server if "kopf" in request.headers.get("User-Agent", "")}
    assert by_kopf == {"GET"}
