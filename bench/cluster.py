"""What the operator costs at rest: many JobQueues on a real API server, their classes quiet but for a few."""

from __future__ import annotations

import itertools
import json
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import psycopg
import yaml

from bench.report import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))  # the control plane, the databases and the processes are those of the tests

from services.accounts import free_port  # noqa: E402
from services.custom_resources import Resources  # noqa: E402
from services.databases import Factory  # noqa: E402
from services.kubernetes import control_plane  # noqa: E402
from services.operators import Operated, job_class, job_queue, secret  # noqa: E402
from services.postgres import Server  # noqa: E402

if TYPE_CHECKING:
    from services.databases import Database

CLASSES = 3
"""Classes of a JobQueue."""
DATABASES = 10
BUSY = 20
"""One class in so many has jobs waiting."""
TICK = 5
WITHIN = 1_800.0
"""Seconds after which a first round that has not ended is given up."""
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"


@dataclass
class Watch:
    """Samples of a running operator, one a second."""

    process: psutil.Process
    port: int
    resident: list[int] = field(default_factory=list)
    rounds: list[tuple[float, int]] = field(default_factory=list)
    """When a round was first seen to have ended, and which."""

    def look(self) -> None:
        """Take one sample."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/live", timeout=30) as answer:
            done = json.load(answer)["rounds"]
        self.resident.append(self.process.memory_info().rss)
        if not self.rounds or self.rounds[-1][1] != done:
            self.rounds.append((time.monotonic(), done))

    def seconds(self) -> float:
        """Return the processor time that it has used."""
        found = self.process.cpu_times()
        return float(found.user + found.system)


def table(queues: int, seconds: float) -> Table:
    """Create `queues` JobQueues of three classes, let the operator settle, and watch it for `seconds`."""
    server = Server("18")
    server.start()
    try:
        with control_plane() as cluster:
            for path in sorted((ROOT / "crds").glob("*.yaml")):
                cluster.install(yaml.safe_load(path.read_text()))
            operated = Operated(cluster, Resources(cluster, cluster.create_namespace()))
            factory = Factory(server)
            factory.prepare()
            databases = [factory.migrated() for _ in range(DATABASES)]
            for number, database in enumerate(databases):
                operated.put(secret(f"d{number}-operator", database), secret(f"d{number}-worker", database))
            for number in range(queues):
                cluster.request("POST", operated.resources.path("JobQueue"), _queue(number))
            try:
                return _measured(operated, databases, queues, seconds)
            finally:
                operated.stop()
    finally:
        server.destroy()


def _queue(number: int) -> dict[str, Any]:
    database = f"d{number % DATABASES}"
    references = {
        "workerSecretRef": {"name": f"{database}-worker"},
        "operatorSecretRef": {"name": f"{database}-operator"},
    }
    return job_queue(f"q{number}", *(job_class(f"c{number}-{k}") for k in range(CLASSES)), database=references)


def _measured(operated: Operated, databases: list[Database], queues: int, seconds: float) -> Table:
    port = free_port()
    process = operated.start(tick=str(TICK), log_level="warning", health_port=str(port))
    began = time.monotonic()
    watch = Watch(psutil.Process(process.pid), port)
    while (made := _made(operated)) < queues * CLASSES:
        if process.code is not None or time.monotonic() - began > WITHIN:
            raise SystemExit(f"{made} Deployments after {time.monotonic() - began:.0f} s:\n{process.text[-3000:]}")
        time.sleep(1)
    first = time.monotonic() - began
    for number in range(0, queues, BUSY):
        with databases[number % DATABASES].connect() as connection:
            connection.execute(
                "SELECT jobqueue.enqueue(%s, 'work', '{}') FROM generate_series(1, 50)", (f"c{number}-0",)
            )
    time.sleep(6 * TICK)
    used, start, most = watch.seconds(), time.monotonic(), 0
    while time.monotonic() - start < seconds:
        watch.look()
        most = max(most, *(_connections(database) for database in databases))
        time.sleep(1)
    share = (watch.seconds() - used) / (time.monotonic() - start)
    gaps = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(watch.rounds[1:])]
    found = Table(
        f"The operator with {queues:,} JobQueues of {CLASSES} classes on {DATABASES} databases, every {TICK} s",
        ["", ""],
    )
    found.rows = [
        ["until every Deployment was there, s", f"{first:.0f}"],
        ["processors used at rest", f"{share:.2f}"],
        ["resident, MiB, most", f"{max(watch.resident) / 2**20:.0f}"],
        ["between two rounds, s, most", f"{max(gaps):.1f}" if gaps else "none ended"],
        ["connections to a database, most", str(most)],
    ]
    return found


def _made(operated: Operated) -> int:
    page = operated.cluster.request("GET", DEPLOYMENTS.format(operated.namespace), limit="1")
    return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))


def _connections(database: Database) -> int:
    with psycopg.connect(database.direct, autocommit=True) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
    assert row is not None  # noqa: S101 - for the type checker
    return int(row[0])
