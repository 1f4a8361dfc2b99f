"""Several operators, deaths, and an API server that goes away: one writer, nothing changed blindly."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from services.operators import Operated, job_class, job_queue, secret
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    eventually(lambda: epoch(database) == 2, within=20)
    with database.connect() as connection:
        connection.execute("SELECT jobqueue.enqueue('email', 'work', '{}')")
    eventually(lambda: operated.deployment()["spec"]["replicas"] == 1, within=20)
    assert operated.deployment()["metadata"]["generation"] == generation + 1


def test_a_database_that_goes_away_changes_nothing_and_is_said(
    operated: Operated, database: Database, pg: Server
) -> None:
    operated.start()
    with database.connect() as connection:
        connection.execute("SELECT jobqueue.set_class(NULL, 'email', '{}')")
        connection.execute("SELECT jobqueue.enqueue('email', 'work', '{}') FROM generate_series(1, 100)")
    eventually(lambda: (operated.deployment() or {"spec": {"replicas": 0}})["spec"]["replicas"] > 0, within=20)
    replicas = operated.deployment()["spec"]["replicas"]
    pg.stop()
    try:
        operated.until("DatabaseReady", "False", "Unreachable")
        operated.until("MetricsAvailable", "False", "QueueNotVisible")
        assert operated.deployment()["spec"]["replicas"] == replicas
        operated.put(job_queue("shop", job_class(), image="example/shop:2"))
        eventually(lambda: operated.status()["observedGeneration"] == 2, within=20)
        assert operated.deployment()["spec"]["template"]["spec"]["containers"][0]["image"] == "example/shop:1"
    finally:
        pg.start()
    operated.until("DatabaseReady", "True")
    image = "example/shop:2"
    eventually(lambda: operated.deployment()["spec"]["template"]["spec"]["containers"][0]["image"] == image, within=20)
