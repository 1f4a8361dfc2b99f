"""Plans made by hand, carried out on a real queue and real workers: fenced, taken back, limited, stopped."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from jobqueue import connect, queue
from jobqueue_operator.planner.facts import Phase, WorkerFacts
from jobqueue_operator.planner.plan import Allocation, Decision, Plan, Pool, Reason, Victim
from jobqueue_operator.platforms.local import LocalPlatform
from jobqueue_operator.platforms.local.template import template
from jobqueue_operator.queues.carry_out import Executor
from jobqueue_operator.queues.database import Database as OperatorDatabase
from jobqueue_operator.queues.gather import Gatherer, LeadershipLost
from jobqueue_operator.workload import load
from services.said import Said
from services.waiting import eventually_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from services.databases import Database

APP = """
import asyncio, pathlib
from jobqueue import App, Job
app = App()
here = pathlib.Path(__file__).parent

@app.handler("nap", version=1, timeout=20)
async def nap(job: Job[dict]) -> None:
    while "until" in job.payload and not (here / job.payload["until"]).exists():
        await asyncio.sleep(0.02)
"""

MANIFEST = """
apiVersion: jobqueue.dev/v1alpha1
kind: JobQueue
metadata: {name: shop}
spec:
  app: jobs:app
  classes:
  - {name: email, concurrency: 1, timeout: 20s, capacity: {ref: {name: db}}}
---
apiVersion: jobqueue.dev/v1alpha1
kind: DownstreamCapacity
metadata: {name: db}
spec: {units: 10}
"""


class Shop:
    """One class on a real queue, its workers, and the steps of a tick."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.folder, self.connection = folder, database.connect()
        (folder / "jobs.py").write_text(APP)
        manifest = folder / "jobqueue.yaml"
        manifest.write_text(MANIFEST)
        self.workload = load(manifest)
        (job_queue,) = self.workload.queues
        made = template(
            job_queue, job_queue.spec.classes[0], database={"JOBQUEUE_DSN": database.direct}, directory=folder
        )
        self.platform = LocalPlatform(folder / "state", {"email": made})
        self.queue = OperatorDatabase(connect.resolve(database.direct), "jobqueue", holder="test")
        self.said = Said()
        self.gatherer = Gatherer(self.queue, self.platform, self.said, tick=1.0)
        self.executor = Executor(self.queue, self.platform, self.said)

    async def carry_out(self, replicas: int, *, limits: dict[str, int] | None = None, **moves: Any) -> None:
        sight = await self.gatherer.look()
        pool = Pool("email", "", Decision(replicas, Reason.DEMAND, ""), **moves)
        allocation = Allocation(
            downstream="db", ceiling=10, limit=10, in_use=0, reason=Reason.SPEC_LIMIT, message="", limits=limits or {}
        )
        await self.executor.carry_out(Plan((pool,), (allocation,)), sight)

    async def workers(self) -> list[WorkerFacts]:
        return list((await self.gatherer.look()).facts.workers)

    async def phases(self) -> list[Phase]:
        return sorted(w.phase for w in await self.workers())

    async def until_phases(self, *phases: Phase) -> None:
        async def reached() -> bool:
            return await self.phases() == sorted(phases)

        await eventually_async(reached, within=30, what=f"phases {phases}")

    def enqueue(self, **payload: Any) -> int:
        return queue.enqueue(self.connection, "email", "nap", payload).id

    async def until_job(self, job: int, status: str) -> None:
        async def reached() -> bool:
            query = "SELECT status FROM jobqueue.jobs WHERE id = %s"
            return self.connection.execute(query, [job]).fetchone() == (status,)

        await eventually_async(reached, within=20, what=f"job {job} is {status}")


@pytest.fixture
async def shop(tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shop]:
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    made = Shop(tmp_path, database)
    await made.queue.lead(may_migrate=True)
    await made.queue.register(made.workload.queues, made.workload.downstreams)
    yield made
    made.platform.release_now()
    await made.platform.close()
    await made.queue.close()
    made.connection.close()


def victims(*names: str) -> tuple[Victim, ...]:
    return tuple(Victim(name, Reason.IDLE_FIRST, "") for name in names)


async def test_a_busy_worker_is_fenced_taken_back_and_works_on(shop: Shop) -> None:
    job = shop.enqueue(until="go")
    await shop.carry_out(1)
    await shop.until_job(job, "running")
    (worker,) = await shop.workers()
    await shop.carry_out(0, retire=victims(worker.name))
    (worker,) = await shop.workers()
    assert (worker.phase, worker.busy) == (Phase.RETIRED, 1)
    (shop.folder / "go").touch()
    await shop.until_job(job, "done")
    late = shop.enqueue()
    await shop.carry_out(1, take_back=(worker.name,))
    assert [w.name for w in await shop.workers()] == [worker.name], "it comes back, and no other is started"
    await shop.until_job(late, "done")
    rows = shop.connection.execute("SELECT number, outcome FROM jobqueue.attempts").fetchall()
    assert rows == [(1, "done"), (1, "done")]


async def test_a_fenced_worker_claims_nothing_and_does_not_block_another(shop: Shop) -> None:
    await shop.carry_out(1)
    await shop.until_phases(Phase.READY)
    (first,) = await shop.workers()
    await shop.carry_out(0, retire=victims(first.name))
    await shop.until_phases(Phase.RETIRED)
    await shop.carry_out(1)
    await shop.until_phases(Phase.READY, Phase.RETIRED)
    job = shop.enqueue()
    await shop.until_job(job, "done")
    rows = shop.connection.execute("SELECT worker FROM jobqueue.attempts").fetchall()
    assert [str(worker).startswith(first.name) for (worker,) in rows] == [False]
    await shop.carry_out(1, stop=victims(first.name))
    await shop.until_phases(Phase.READY)
    assert first.name not in {w.name for w in await shop.workers()}


async def test_a_limit_is_written_where_it_differs(shop: Shop) -> None:
    await shop.carry_out(0, limits={"": 7})
    assert shop.connection.execute("SELECT unit_limit FROM jobqueue.downstream").fetchall() == [(7,)]
    await shop.carry_out(0, limits={"elsewhere": 3})
    assert shop.connection.execute("SELECT unit_limit FROM jobqueue.downstream").fetchall() == [(7,)]


async def test_nothing_is_carried_out_once_another_leads(shop: Shop) -> None:
    await shop.carry_out(1)
    await shop.until_phases(Phase.READY)
    (worker,) = await shop.workers()
    queue.lead(shop.connection, "another")
    with pytest.raises(LeadershipLost, match="another"):
        await shop.carry_out(2, retire=victims(worker.name))
    assert await shop.phases() == [Phase.READY], "neither fenced nor joined by a second one"
