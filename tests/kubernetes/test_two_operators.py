"""Several operators, deaths, and what goes away: one writer, and nothing is changed blindly."""

from __future__ import annotations

import asyncio
import random
import signal
import time
import urllib.parse
from typing import TYPE_CHECKING

import pytest

from services.operators import Operated, job_class, job_queue, secret
from services.proxy import proxied
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from services.custom_resources import Resources
    from services.databases import Database
    from services.kubernetes import Cluster
    from services.postgres import Server
    from services.processes import Process


@pytest.fixture
def operated(controllers: Cluster, resources: Resources, database: Database) -> Iterator[Operated]:
    made = Operated(controllers, resources)
    made.put(secret("shop-operator", database), secret("shop-worker", database), job_queue("shop", job_class()))
    yield made
    made.stop()


def competing(operated: Operated, identity: str) -> Process:
    return operated.start(standalone="false", lease_namespace=operated.namespace, identity=identity)


def epoch(database: Database) -> int:
    with database.connect() as connection:
        row = connection.execute("SELECT epoch FROM jobqueue.leader").fetchone()
    assert row is not None
    return int(str(row[0]))


def test_of_two_one_acts_and_the_other_takes_over_when_it_stops(operated: Operated, database: Database) -> None:
    first = competing(operated, "first")
    first.wait_for_line("holding Lease")
    operated.until("Ready", "True")
    second = competing(operated, "second")
    second.wait_for_line("waiting for Lease")
    assert epoch(database) == 1
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    second.wait_for_line("holding Lease", within=10)
    eventually(lambda: epoch(database) == 2, within=10)
    assert "lost" not in second.text


def test_one_that_is_killed_changes_nothing_and_its_successor_goes_on(operated: Operated, database: Database) -> None:
    first = operated.start()
    operated.until("Ready", "True")
    generation = operated.deployment()["metadata"]["generation"]
    first.signal(signal.SIGKILL)
    first.wait()
    operated.start()
    eventually(lambda: epoch(database) == 2, within=40)
    with database.connect() as connection:
        connection.execute("SELECT jobqueue.enqueue('email', 'work', '{}')")
    eventually(lambda: operated.deployment()["spec"]["replicas"] == 1, within=40)
    assert operated.deployment()["metadata"]["generation"] == generation + 1


def test_a_database_that_goes_away_changes_nothing_and_is_said(
    operated: Operated, database: Database, pg: Server
) -> None:
    operated.start()
    with database.connect() as connection:
        connection.execute("SELECT jobqueue.set_class(NULL, 'email', '{}')")
        connection.execute("SELECT jobqueue.enqueue('email', 'work', '{}') FROM generate_series(1, 100)")
    eventually(lambda: (operated.deployment() or {"spec": {"replicas": 0}})["spec"]["replicas"] > 0, within=40)
    replicas = operated.deployment()["spec"]["replicas"]
    pg.stop()
    try:
        operated.until("DatabaseReady", "False", "Unreachable")
        operated.until("MetricsAvailable", "False", "QueueNotVisible")
        assert operated.deployment()["spec"]["replicas"] == replicas
        operated.put(job_queue("shop", job_class(), image="example/shop:2"))
        eventually(lambda: operated.status()["observedGeneration"] == 2, within=40)
        assert operated.deployment()["spec"]["template"]["spec"]["containers"][0]["image"] == "example/shop:1"
    finally:
        pg.start()
    operated.until("DatabaseReady", "True")
    image = "example/shop:2"
    eventually(lambda: operated.deployment()["spec"]["template"]["spec"]["containers"][0]["image"] == image, within=40)


async def test_an_api_server_that_is_cut_off_is_found_again_and_nothing_is_missed(
    operated: Operated, database: Database, tmp_path: Path
) -> None:
    server = urllib.parse.urlsplit(operated.cluster.url).port

    def image() -> str:
        found: str = operated.deployment()["spec"]["template"]["spec"]["containers"][0]["image"]
        return found

    async with proxied(lambda: asyncio.open_connection("127.0.0.1", server)) as proxy:
        text = operated.cluster.kubeconfig.read_text()
        (tmp_path / "kubeconfig").write_text(text.replace(f":{server}", f":{proxy.port}"))
        process = operated.start(kubeconfig=str(tmp_path / "kubeconfig"))
        await asyncio.to_thread(operated.until, "Ready", "True")
        proxy.cut()
        await asyncio.to_thread(operated.put, job_queue("shop", job_class(), image="example/shop:2"))
        await asyncio.to_thread(eventually, lambda: image() == "example/shop:2", within=40)
        proxy.freeze()
        await asyncio.to_thread(operated.put, job_queue("shop", job_class(), image="example/shop:3"))
        with database.connect() as connection:  # what the database says asks for a pod, and so for an answer
            connection.execute("SELECT jobqueue.enqueue('email', 'work', '{}')")
        await asyncio.to_thread(process.wait_for_line, "the API server did not answer within 10s", within=40)
        found = operated.deployment()["spec"]
        assert (image(), found["replicas"]) == ("example/shop:2", 0)
        proxy.thaw()
        await asyncio.to_thread(eventually, lambda: image() == "example/shop:3", within=30)
        await asyncio.to_thread(eventually, lambda: operated.deployment()["spec"]["replicas"] == 1, within=30)
        process.wait_for_line("the API server answers again")
    assert process.code is None


def test_killed_again_and_again_while_it_writes_it_still_arrives(operated: Operated) -> None:
    """At five moments that the seed draws, from its first request on; each time there is something new to write."""
    draw = random.Random(7)  # noqa: S311 - moments, not secrets
    for version in range(5):
        operated.put(job_queue("shop", job_class(), job_class(f"extra-{version}"), image=f"example/shop:{version}"))
        process = operated.start()
        process.wait_for_line("serving")
        time.sleep(draw.uniform(0.2, 1.5))
        process.signal(signal.SIGKILL)
        process.wait()
    operated.start()

    def as_asked() -> bool:
        names = {"shop-email", "shop-extra-4"}
        path = f"/apis/apps/v1/namespaces/{operated.namespace}/deployments"
        found = operated.cluster.request("GET", path)["items"]
        images = {each["spec"]["template"]["spec"]["containers"][0]["image"] for each in found}
        return {each["metadata"]["name"] for each in found} == names and images == {"example/shop:4"}

    eventually(as_asked, within=30, what="the last manifest to be carried out, and nothing else to be left")
    operated.until("Ready", "True")
    assert (
        operated.status()["observedGeneration"] == operated.resources.get("JobQueue", "shop")["metadata"]["generation"]
    )
