"""Timeouts, cancellations and stuck handlers, in all three modes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jobqueue import queue
from services.waiting import eventually
from services.workers import alive

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.workers import Jobs, Worker


def test_async_handler_is_cancelled_at_its_timeout(jobs: Jobs, worker_process: Callable[..., Worker]) -> None:
    job, neighbour = jobs.add("wait.short", max_attempts=1), jobs.add("wait", {"seconds": 3})
    worker = worker_process()
    row = jobs.until(job, "dead")
    assert "TimeoutError: ran longer than 1 s" in row["last_error"]
    assert 1 <= (row["finished_at"] - row["started_at"]).total_seconds() < 2.5
    assert jobs.until(neighbour, "done")["attempts"] == 1
    assert len(worker.events("runner started")) == 1


def test_process_is_killed_with_its_whole_family_at_its_timeout(
    jobs: Jobs, worker_process: Callable[..., Worker]
) -> None:
    worker = worker_process()
    job = jobs.add("process.family", max_attempts=1)
    (_, what, pid, _) = jobs.until_seen(job, "family%")[0]
    family = [pid, *map(int, what.split()[1:])]
    assert all(map(alive, family))
    assert "TimeoutError" in jobs.until(job, "dead")["last_error"]
    eventually(lambda: not any(map(alive, family)), what="the family to be dead")
    assert len(worker.events("runner started")) == 1


def test_stuck_thread_has_its_runner_replaced_and_neighbours_finish(
    jobs: Jobs, worker_process: Callable[..., Worker]
) -> None:
    worker = worker_process()
    job, neighbour = jobs.add("thread.short", max_attempts=1), jobs.add("wait", {"seconds": 4})
    (_, _, pid, _) = jobs.until_seen(job, "start")[0]
    eventually(lambda: worker.metric("jobqueue_stuck_handlers") == 1, what="the gauge of stuck handlers")
    assert alive(pid)
    assert jobs.row(job)["status"] == "running"  # charged until its process is dead
    row = jobs.until(job, "dead")
    assert "TimeoutError" in row["last_error"]
    assert not alive(pid)
    assert (jobs.row(neighbour)["status"], jobs.row(neighbour)["attempts"]) == ("done", 1)
    worker.runner(2)
    assert jobs.until(jobs.add("wait"), "done")["attempts"] == 1


@pytest.mark.parametrize("kind", ["regex", "thread.regex"])
def test_frozen_interpreter_for_two_leases_starts_no_second_time(
    jobs: Jobs, worker_process: Callable[..., Worker], kind: str
) -> None:
    """Timeout 6 s, lease 3 s: the supervisor renews until the deadline, then kills; neighbours are given back."""
    neighbour = jobs.add("wait", {"seconds": 15})
    worker, other = worker_process(concurrency=2), worker_process(concurrency=1)
    jobs.until_seen(neighbour, "start")
    job = jobs.add(kind, max_attempts=1)
    jobs.until_seen(job, "start")
    row = jobs.until(job, "dead", within=25)
    assert "TimeoutError" in row["last_error"]
    assert (row["finished_at"] - row["started_at"]).total_seconds() > 6
    assert len(jobs.seen(job, "start")) == 1
    assert jobs.row(neighbour)["attempts"] <= 1
    assert not [1 for _, outcome, _ in jobs.attempts(neighbour) if outcome not in {"released", "done"}]
    eventually(lambda: worker.events("runner started")[1:] or other.events("runner started")[1:], what="a new runner")


@pytest.mark.parametrize("kind", ["wait", "process.wait"])
def test_running_job_is_stopped_when_it_is_cancelled(
    jobs: Jobs, worker_process: Callable[..., Worker], kind: str
) -> None:
    worker_process()
    job = jobs.add(kind, {"seconds": 15})
    (_, _, pid, _) = jobs.until_seen(job, "start")[0]
    assert queue.cancel(jobs.connection, job) == "requested"
    jobs.until(job, "cancelled", within=5)
    assert jobs.seen(job, "end") == []
    assert alive(pid) == (kind == "wait")


def test_thread_is_told_that_it_is_cancelled(jobs: Jobs, worker_process: Callable[..., Worker]) -> None:
    worker_process()
    job = jobs.add("cancellable")
    jobs.until_seen(job, "start")
    assert queue.cancel(jobs.connection, job) == "requested"
    jobs.until_seen(job, "saw the cancellation")
    jobs.until(job, "cancelled", within=5)


def test_handler_that_swallows_its_cancellation_once_is_done(jobs: Jobs, worker_process: Callable[..., Worker]) -> None:
    worker_process()
    job = jobs.add("wait.stubborn")
    jobs.until_seen(job, "cancelled")
    assert jobs.until(job, "done")["attempts"] == 1  # it returned: a finished job is acknowledged


@pytest.mark.parametrize("how", ["base", "generator-exit", "cancels-itself"])
def test_whatever_a_handler_raises_ends_its_attempt_and_leaves_the_slot(
    jobs: Jobs, worker_process: Callable[..., Worker], how: str
) -> None:
    odd = jobs.add("odd", {"how": how}, max_attempts=1)
    worker_process(concurrency=1)
    assert jobs.until(odd, "dead")["attempts"] == 1
    jobs.until(jobs.add("noop"), "done")


@pytest.mark.parametrize("kind", ["unseen", "process.unseen"])
def test_a_coroutine_that_nobody_ran_is_not_done(jobs: Jobs, worker_process: Callable[..., Worker], kind: str) -> None:
    job = jobs.add(kind)
    worker_process()
    assert "returned a coroutine, which nothing runs" in jobs.until(job, "dead")["last_error"]
    assert jobs.seen(job) == []
