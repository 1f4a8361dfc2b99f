"""What a worker does on a good day, in all three modes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.workers import Jobs, Worker


@pytest.mark.parametrize("kind", ["wait", "thread.wait", "process.wait"])
def test_runs_jobs_in_every_mode(jobs: Jobs, worker_process: Callable[..., Worker], kind: str) -> None:
    ids = jobs.add_many(kind, 10, {"seconds": 0})
    worker = worker_process(concurrency=3)
    for job in ids:
        assert jobs.until(job, "done")["attempts"] == 1
        assert [what for _, what, _, _ in jobs.seen(job)] == ["start", "end"]
    pids = {pid for job in ids for _, _, pid, _ in jobs.seen(job)}
    assert worker.process.pid not in pids
    assert (worker.runner() in pids) == (kind != "process.wait")
    assert len(pids) <= (3 if kind == "process.wait" else 1)


def test_counts_what_it_did(jobs: Jobs, worker_process: Callable[..., Worker]) -> None:
    worker = worker_process()
    assert worker.metric("jobqueue_claims_total") == 0
    assert worker.metric("jobqueue_process_seconds_count", kind="noop") == 0
    jobs.add_many("noop", 300)
    jobs.until_all("done", 300)
    eventually(lambda: worker.metric("jobqueue_acks_total", outcome="done") == 300, what="300 acks counted")
    assert worker.metric("jobqueue_claims_total") == 300
    assert worker.metric("jobqueue_process_seconds_count", kind="noop") == 300
    assert worker.metric("jobqueue_wait_seconds_count") == 300
    assert worker.metric("jobqueue_slots", state="idle") == 8


def test_wakes_up_well_before_the_next_poll(jobs: Jobs, worker_process: Callable[..., Worker]) -> None:
    worker_process(poll_interval=30)
    eventually(lambda: jobs.value("SELECT count(*) FROM jobqueue.sleeper"), what="the worker to sleep")
    job = jobs.add("noop")
    jobs.until(job, "done", within=5)


@pytest.mark.parametrize("kind", ["transaction", "transaction.thread", "transaction.process"])
def test_effect_and_acknowledgement_commit_together(
    jobs: Jobs, worker_process: Callable[..., Worker], kind: str
) -> None:
    job = jobs.add(kind)
    worker = worker_process()
    jobs.until_seen(job, "committed")
    assert jobs.row(job)["status"] == "done"
    assert jobs.value("SELECT count(*) FROM effects WHERE job_id = %s", job) == 1
    assert worker.events("failed") == []


def test_an_exception_after_the_commit_is_logged_and_not_retried(
    jobs: Jobs, worker_process: Callable[..., Worker]
) -> None:
    worker = worker_process()
    job = jobs.add("transaction", {"raise": True})
    said = eventually(
        lambda: worker.events("raised after its acknowledgement; the job is done and not retried"), what="the log line"
    )
    assert "after the commit" in said[0]["error"]
    row = jobs.row(job)
    assert (row["status"], row["attempts"]) == ("done", 1)


def test_outcomes_that_handlers_raise(jobs: Jobs, worker_process: Callable[..., Worker]) -> None:
    retry, dead, snooze = jobs.add("retry"), jobs.add("dead"), jobs.add("snooze")
    worker_process()
    assert jobs.until(retry, "done")["attempts"] == 2
    row = jobs.until(dead, "dead")
    assert (row["attempts"], row["reason"]) == (1, "never")
    assert jobs.until(snooze, "done")["attempts"] == 1
    assert [outcome for _, outcome, _ in jobs.attempts(snooze)] == ["snoozed", "done"]


def test_errors_are_stored_bounded_and_whatever_they_hold(jobs: Jobs, worker_process: Callable[..., Worker]) -> None:
    job = jobs.add("fail", max_attempts=2)
    worker_process()
    row = jobs.until(job, "dead")
    assert row["attempts"] == 2
    assert row["last_error"].startswith("ValueError: it broke")
    assert len(row["last_error"]) <= 2000


def test_a_payload_that_fails_its_model_is_dead_at_once_and_its_value_nowhere(
    jobs: Jobs, worker_process: Callable[..., Worker]
) -> None:
    job = jobs.add("model", {"n": "canary-4711"})
    worker = worker_process()
    row = jobs.until(job, "dead")
    assert row["attempts"] == 1
    assert "n: " in row["last_error"]
    assert "canary" not in row["last_error"]
    worker.terminate()
    worker.process.wait()
    assert "canary" not in worker.process.text


@pytest.mark.parametrize(
    ("actor", "why"),
    [
        ("mallory", "not authorized"),
        ("unknown", "no such actor"),
        ("forgetful", "the check answered with NoneType; it must return True or False"),
    ],
)
def test_refusal_is_dead_and_the_handler_never_starts(
    jobs: Jobs, worker_process: Callable[..., Worker], actor: str, why: str
) -> None:
    refused, other = jobs.add("wait", {}, actor_id=actor), jobs.add("wait", {}, actor_id="alice")
    worker_process()
    row = jobs.until(refused, "dead")
    assert why in row["last_error"]
    assert jobs.seen(refused) == []
    jobs.until(other, "done")


def test_effect_key_is_the_same_for_every_attempt(jobs: Jobs, worker_process: Callable[..., Worker]) -> None:
    job, other = jobs.add("effect-key"), jobs.add("effect-key")
    worker_process()
    jobs.until(job, "done")
    jobs.until(other, "done")
    keys = {what for _, what, _, _ in jobs.seen(job)}
    assert len(jobs.seen(job)) == 2
    assert len(keys) == 1
    assert keys.isdisjoint({what for _, what, _, _ in jobs.seen(other)})


def test_system_exit_in_a_handler_ends_the_attempt_and_nothing_else(
    jobs: Jobs, worker_process: Callable[..., Worker]
) -> None:
    job, neighbour = jobs.add("system-exit", max_attempts=1), jobs.add("wait", {"seconds": 1})
    worker = worker_process()
    assert "SystemExit" in jobs.until(job, "dead")["last_error"]
    assert jobs.until(neighbour, "done")["attempts"] == 1
    assert len(worker.events("runner started")) == 1


def test_transaction_takes_the_handlers_own_connection_when_it_is_idle(
    jobs: Jobs, worker_process: Callable[..., Worker]
) -> None:
    worker_process()
    job = jobs.add("transaction.own")
    (busy, after) = jobs.until_seen(job, "%", count=2)
    assert "INTRANS" in busy[1]
    assert after[1] == "nothing after the acknowledgement"
    assert (jobs.row(job)["status"], jobs.row(job)["attempts"]) == ("done", 1)
    assert jobs.value("SELECT attempt FROM effects WHERE job_id = %s", job) == 1


def test_effect_without_acknowledgement_is_kept_and_skipped_next_time(
    jobs: Jobs, worker_process: Callable[..., Worker]
) -> None:
    worker_process()
    job = jobs.add("transaction.unacknowledged")
    assert jobs.until(job, "done")["attempts"] == 2
    assert jobs.value("SELECT attempt FROM effects WHERE job_id = %s", job) == 1


def test_exception_inside_the_transaction_undoes_effect_and_key(
    jobs: Jobs, worker_process: Callable[..., Worker]
) -> None:
    worker_process()
    job = jobs.add("transaction.broken")
    assert jobs.until(job, "done")["attempts"] == 2
    assert jobs.value("SELECT attempt FROM effects WHERE job_id = %s", job) == 2


@pytest.mark.parametrize("kind", ["context", "thread.context", "process.context"])
def test_context_variables_end_with_their_job(jobs: Jobs, worker_process: Callable[..., Worker], kind: str) -> None:
    ids = jobs.add_many(kind, 4, {})
    worker_process(concurrency=1)
    for job in ids:
        jobs.until(job, "done")
        assert [what for _, what, _, _ in jobs.seen(job)] == ["clean"]
