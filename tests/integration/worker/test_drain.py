"""Draining: by signal, by socket, at its deadline, and at once."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from services.waiting import eventually
from services.workers import alive

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.postgres import Server
    from services.workers import Jobs, Worker

MODES = ["wait", "thread.wait", "process.wait"]


@pytest.mark.parametrize("to", ["supervisor", "group"])
@pytest.mark.parametrize("kind", MODES)
def test_sigterm_finishes_what_runs_and_gives_back_what_waits(
    jobs: Jobs, worker_process: Callable[..., Worker], kind: str, to: str
) -> None:
    worker = worker_process(concurrency=2, prefetch=0)
    running = [jobs.add(kind, {"seconds": 2}) for _ in range(2)]
    for job in running:
        jobs.until_seen(job, "start")
    waiting = jobs.add(kind)
    (worker.process.signal if to == "supervisor" else worker.process.signal_group)(signal.SIGTERM)
    assert worker.process.wait() == 0
    for job in running:
        assert (jobs.row(job)["status"], jobs.row(job)["attempts"]) == ("done", 1)
    assert jobs.row(waiting)["status"] == "pending"
    assert jobs.attempts(waiting) == []
    assert jobs.value("SELECT count(*) FROM jobqueue.lease") == 0
    assert jobs.value("SELECT count(*) FROM jobqueue.worker WHERE state <> 'gone'") == 0


def test_a_drain_longer_than_the_lease_goes_on_renewing(jobs: Jobs, worker_process: Callable[..., Worker]) -> None:
    worker = worker_process()
    job = jobs.add("wait", {"seconds": 5})  # the lease is 3 s
    jobs.until_seen(job, "start")
    worker.terminate()
    assert worker.process.wait() == 0
    assert (jobs.row(job)["status"], jobs.row(job)["attempts"]) == ("done", 1)


@pytest.mark.parametrize("kind", MODES)
def test_at_the_deadline_what_runs_is_stopped_and_released_with_its_attempt(
    jobs: Jobs, worker_process: Callable[..., Worker], kind: str
) -> None:
    worker = worker_process(drain_timeout=1)
    job = jobs.add(kind, {"seconds": 60})
    (_, _, pid, _) = jobs.until_seen(job, "start")[0]
    began = time.monotonic()
    worker.terminate()
    assert worker.process.wait() == 0
    assert 1 <= time.monotonic() - began < 8
    row = jobs.row(job)
    assert (row["status"], row["attempts"]) == ("pending", 0)
    assert [(number, outcome) for number, outcome, _ in jobs.attempts(job)] == [(1, "released")]
    assert not alive(pid)
    again = worker_process()
    jobs.until_seen(job, "start", count=2, within=5)  # claimable at once, not after its lease
    again.process.close()


def test_second_sigterm_releases_now(jobs: Jobs, worker_process: Callable[..., Worker]) -> None:
    worker = worker_process(drain_timeout=60)
    job = jobs.add("wait", {"seconds": 60})
    jobs.until_seen(job, "start")
    worker.terminate()
    eventually(lambda: worker.events("draining"), what="the drain to begin")
    assert worker.process.code is None
    worker.terminate()
    assert worker.process.wait(within=8) == 0
    row = jobs.row(job)
    assert (row["status"], row["attempts"]) == ("pending", 0)


def test_drain_by_socket_blocks_until_drained_and_asking_twice_changes_nothing(
    jobs: Jobs, worker_process: Callable[..., Worker]
) -> None:
    worker = worker_process()
    job = jobs.add("wait", {"seconds": 2})
    jobs.until_seen(job, "start")
    first, second = worker.drain(), worker.drain()
    eventually(lambda: worker.get("/ready")[0] == 503, what="readiness to fail")
    assert worker.get("/live")[0] == 200
    assert first.poll() is None
    assert first.wait(20) == 0
    assert second.wait(20) == 0
    assert jobs.row(job)["status"] == "done"
    assert worker.process.wait() == 0
    assert len(worker.events("draining")) == 1


def test_sigterm_after_the_socket_does_not_cut_the_drain_short(
    jobs: Jobs, worker_process: Callable[..., Worker]
) -> None:
    worker = worker_process()
    job = jobs.add("wait", {"seconds": 2})
    jobs.until_seen(job, "start")
    asked = worker.drain()
    eventually(lambda: worker.events("draining"), what="the drain to begin")
    worker.terminate()
    assert asked.wait(20) == 0
    assert worker.process.wait() == 0
    assert (jobs.row(job)["status"], jobs.row(job)["attempts"]) == ("done", 1)


def test_drain_where_nobody_listens_says_so(worker_process: Callable[..., Worker]) -> None:
    worker = worker_process()
    worker.terminate()
    assert worker.process.wait() == 0
    assert worker.drain().wait(10) == 1


def test_many_finishing_jobs_are_acknowledged_never_released(jobs: Jobs, worker_process: Callable[..., Worker]) -> None:
    worker = worker_process(concurrency=8)
    jobs.add_many("noop", 20_000)
    jobs.until_all("done", 2_000)
    worker.terminate()
    assert worker.process.wait() == 0
    assert jobs.value("SELECT count(*) FROM jobqueue.lease") == 0
    done = jobs.value("SELECT count(*) FROM jobqueue.jobs WHERE status = 'done'")
    assert done < 20_000
    assert jobs.value("SELECT count(*) FROM jobqueue.jobs WHERE status = 'pending' AND attempts = 0") == 20_000 - done
    assert jobs.value("SELECT count(*) FROM jobqueue.jobs WHERE attempts > 1") == 0
    again = worker_process()
    jobs.until_all("done", 20_000)
    again.process.close()
    assert jobs.value("SELECT count(*) FROM jobqueue.attempt WHERE outcome <> 'released'") == 0


@pytest.mark.parametrize("moment", ["running", "idle"])
def test_drain_ends_by_itself_while_the_database_is_away(
    jobs: Jobs, worker_process: Callable[..., Worker], pg: Server, moment: str
) -> None:
    worker = worker_process(drain_timeout=1)
    if moment == "running":
        job = jobs.add("wait", {"seconds": 60})
        jobs.until_seen(job, "start")
    jobs.connection.close()
    pg.stop()
    worker.terminate()
    assert worker.process.wait(within=30) == 0
