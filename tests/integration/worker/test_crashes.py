"""Processes that die or freeze at the worst moment, with real signals."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from services.waiting import eventually
from services.workers import alive

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.workers import Jobs, Worker


def test_killed_runner_spends_the_attempts_of_what_ran_and_is_replaced(
    jobs: Jobs, worker_process: Callable[..., Worker]
) -> None:
    worker = worker_process()
    job = jobs.add("wait", {"seconds": 3})
    jobs.until_seen(job, "start")
    os.kill(worker.runner(), signal.SIGKILL)
    assert jobs.until(job, "done")["attempts"] == 2
    assert [outcome for _, outcome, _ in jobs.attempts(job)] == ["lost", "done"]
    assert "SIGKILL" in worker.events("runner died")[0]["how"]
    assert worker.process.code is None


def test_what_had_not_started_is_given_back_when_the_runner_dies(
    jobs: Jobs, worker_process: Callable[..., Worker]
) -> None:
    worker = worker_process(concurrency=1, prefetch=500)
    jobs.add_many("noop", 30_000)
    jobs.until_all("done", 3_000)
    os.kill(worker.runner(), signal.SIGKILL)
    jobs.until_all("done", 30_000, within=60)
    lost = jobs.value("SELECT count(*) FROM jobqueue.attempts WHERE outcome = 'lost'")
    assert lost <= 1  # only what ran at that moment


def test_killed_supervisor_takes_its_processes_along_and_the_lease_ends_it(
    jobs: Jobs, worker_process: Callable[..., Worker]
) -> None:
    worker, other = worker_process(), worker_process
    thread, child = jobs.add("thread.wait", {"seconds": 15}), jobs.add("process.wait", {"seconds": 15})
    pids = [jobs.until_seen(job, "start")[0][2] for job in (thread, child)]
    worker.process.signal(signal.SIGKILL)
    eventually(lambda: not any(map(alive, pids)), what="runner and child to be dead")
    other()
    for job in (thread, child):
        eventually(lambda job=job: jobs.row(job)["attempts"] == 2, within=20, what="a second attempt")  # type: ignore[misc]
        assert jobs.attempts(job)[0][:2] == (1, "lost")


def test_frozen_worker_wakes_past_its_lease_and_its_acknowledgement_is_refused(
    jobs: Jobs, worker_process: Callable[..., Worker]
) -> None:
    worker = worker_process()
    job = jobs.add("transaction", {"seconds": 1.5})
    plain = jobs.add("thread.wait", {"seconds": 1.5})
    jobs.until_seen(job, "inside")
    jobs.until_seen(plain, "start")
    frozen = worker.stop_all()
    other = worker_process()
    done = [jobs.until(each, "done", within=30) for each in (job, plain)]
    worker.continue_all(frozen)
    eventually(lambda: len(jobs.seen(plain, "end")) == 2, what="the frozen thread to end its sleep")
    eventually(
        lambda: worker.metric("jobqueue_stale_acks_rejected_total") + worker.metric("jobqueue_leases_lost_total") >= 2,
        what="refusals to be counted",
    )
    assert [jobs.row(each["id"])["finished_at"] for each in done] == [each["finished_at"] for each in done]
    assert jobs.value("SELECT attempt FROM effects WHERE job_id = %s", job) == 2
    assert jobs.value("SELECT count(*) FROM effects") == 1
    assert other.metric("jobqueue_stale_acks_rejected_total") == 0
    assert jobs.until(jobs.add("wait"), "done")["attempts"] == 1


def test_transaction_frozen_past_its_lease_is_ended_by_the_database(
    jobs: Jobs, worker_process: Callable[..., Worker]
) -> None:
    """Its locks must not keep the next attempt out: idle_in_transaction_session_timeout is the lease left."""
    worker = worker_process()
    job = jobs.add("transaction", {"seconds": 1})
    jobs.until_seen(job, "inside")
    frozen = worker.stop_all()
    worker_process()
    jobs.until_seen(job, "committed", within=30)  # while the first is still frozen
    assert jobs.value("SELECT attempt FROM effects WHERE job_id = %s", job) == 2
    worker.continue_all(frozen)
    assert jobs.until(job, "done")["attempts"] == 2


def test_poison_job_is_dead_at_its_limit_and_takes_nobody_along_twice(
    jobs: Jobs, worker_process: Callable[..., Worker]
) -> None:
    worker = worker_process(concurrency=16)
    neighbours = [jobs.add("wait", {"seconds": 2}, max_attempts=3) for _ in range(15)]
    for job in neighbours:
        jobs.until_seen(job, "start")
    poison = jobs.add("poison", max_attempts=3)
    row = jobs.until(poison, "dead", within=60)
    assert (row["attempts"], row["reason"]) == (3, "worker lost")
    assert [outcome for _, outcome, _ in jobs.attempts(poison)] == ["lost"] * 3
    for job in neighbours:
        assert jobs.until(job, "done", within=60)["attempts"] <= 2  # the first loss, and no other
    assert len(worker.events("runner died")) == 1
    assert len({pid for _, _, pid, _ in jobs.seen(poison)}) == 3


def test_child_that_exits_takes_its_own_attempt_and_no_other(jobs: Jobs, worker_process: Callable[..., Worker]) -> None:
    worker = worker_process()
    neighbour = jobs.add("process.wait", {"seconds": 3})
    jobs.until_seen(neighbour, "start")
    job = jobs.add("exit", max_attempts=2)
    row = jobs.until(job, "dead", within=30)
    assert (row["attempts"], row["reason"]) == (2, "worker lost")
    assert "exited with status 3" in row["last_error"]
    assert jobs.until(neighbour, "done")["attempts"] == 1
    assert len(worker.events("runner started")) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_runner_leaves_signals_to_the_supervisor(
    jobs: Jobs, worker_process: Callable[..., Worker], number: signal.Signals
) -> None:
    worker = worker_process()
    job = jobs.add("wait", {"seconds": 1})
    jobs.until_seen(job, "start")
    os.kill(worker.runner(), number)
    assert jobs.until(job, "done")["attempts"] == 1
    assert len(worker.events("runner started")) == 1
