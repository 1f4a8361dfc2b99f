"""The snapshot of a real queue: decoded, and exposed to Prometheus without ever inventing a zero."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from jobqueue import queue
from jobqueue.errors import SchemaError
from jobqueue.signals import Snapshot, decode
from jobqueue.signals.collector import Observation, SnapshotCollector

if TYPE_CHECKING:
    from services.databases import Database

LABELS = {"namespace": "shop", "queue": "jobs", "class": "email"}


@pytest.fixture
def answer(database: Database) -> dict[str, Any]:
    """A queue in which each kind of fact is there: ready, scheduled, running, expired, dead, blocked, a downstream."""
    with database.connect() as connection:
        queue.set_downstream(connection, None, "mailer", 10)
        settings = {"downstream": "mailer", "units_per_job": 2, "target_age_seconds": 20, "max_attempts": 1}
        queue.set_class(connection, None, "email", settings)
        queue.set_class(connection, None, "idle", {})
        kinds = [("hello", 1)]
        worker = queue.register_worker(connection, "worker-1", "email", kinds, slots=4, info={"node": "a"}).worker
        for n in range(6):
            queue.enqueue(connection, "email", "hello", {"n": n})
        queue.enqueue(connection, "email", "unheard", {})
        later = "SELECT jobqueue.enqueue('email', 'hello', '{}', run_after => now() + interval '1 hour')"
        connection.execute(later)
        dead, _running, short = queue.claim(connection, "email", worker, 1, max_jobs=3, kinds=kinds)
        queue.fail(connection, dead.id, dead.token, "no", outcome="dead")
        connection.execute("UPDATE jobqueue.lease SET leased_until = now() - interval '5 s' WHERE id = %s", (short.id,))
        found: dict[str, Any] = queue.snapshot(connection)
    return found


@pytest.fixture
def snapshot(answer: dict[str, Any]) -> Snapshot:
    return decode(answer)


def test_a_class_is_decoded_with_all_its_facts(snapshot: Snapshot) -> None:
    email = snapshot.find("email")
    assert email is not None
    assert (email.ready, email.scheduled, email.in_flight, email.expired, email.dead) == (5, 1, 1, 1, 1)
    assert (email.pending, email.running) == (5, 2)
    assert (email.blocked_unsupported, email.blocked_key, email.blocked_tenant, email.blocked) == (1, 0, 0, 1)
    assert 5 <= email.oldest_age_seconds < 60
    assert len(email.age_quantiles_seconds) == 8
    assert list(email.age_quantiles_seconds) == sorted(email.age_quantiles_seconds, reverse=True)
    assert 0 < email.longest_running_seconds < 60
    assert 0 < email.oldest_dead_age_seconds < 60
    assert (email.target_age_seconds, email.lease_seconds, email.timeout_seconds) == (20, 60, 30)
    assert (email.downstream, email.units_per_job, email.max_attempts) == ("mailer", 2, 1)
    assert not email.estimated
    assert not email.paused


def test_a_class_with_nothing_in_it_is_there_with_zeros(snapshot: Snapshot) -> None:
    idle = snapshot.find("idle")
    assert idle is not None
    assert (idle.ready, idle.in_flight, idle.dead, idle.oldest_age_seconds) == (0, 0, 0, 0)
    assert idle.age_quantiles_seconds == ()
    assert idle.downstream is None
    assert snapshot.find("nowhere") is None


def test_workers_downstreams_and_the_database_are_decoded(snapshot: Snapshot) -> None:
    (worker,) = snapshot.workers_of("email")
    assert (worker.name, worker.state, worker.slots, worker.in_flight) == ("worker-1", "active", 4, 2)
    assert worker.info == {"node": "a"}
    assert worker.registered_at <= snapshot.now
    assert abs(snapshot.now.timestamp() - time.time()) < 60
    (mailer,) = snapshot.downstreams
    assert (mailer.downstream, mailer.limit, mailer.in_use) == ("mailer", 10, 4)
    assert snapshot.database.table_bytes["ready"] > 0
    assert set(snapshot.database.dead_tuples) == {"ready", "lease"}
    assert 0 <= snapshot.database.notify_queue_usage_ratio <= 1
    assert snapshot.database.epoch == 0


def test_an_older_schemas_answer_is_refused_with_the_remedy(answer: dict[str, Any]) -> None:
    del answer["classes"][0]["ready"]
    with pytest.raises(SchemaError, match=r"'ready'.*jobqueue migrate"):
        decode(answer)


def test_what_a_newer_schema_adds_is_ignored(answer: dict[str, Any], snapshot: Snapshot) -> None:
    answer["more"] = answer["classes"][0]["more"] = answer["database"]["more"] = 1
    assert decode(answer) == snapshot


def registered(*observations: Observation) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(lambda: observations))
    return registry


def test_every_fact_of_a_class_has_its_metric(snapshot: Snapshot) -> None:
    registry = registered(Observation("shop", "jobs", snapshot, succeeded_at=1000.0))

    def value(name: str, **more: str) -> float | None:
        return registry.get_sample_value(f"jobqueue_{name}", LABELS | more)

    assert value("ready_jobs") == 5
    assert value("scheduled_jobs") == 1
    assert value("in_flight_jobs") == 1
    assert value("expired_leases") == 1
    assert value("dead_jobs") == 1
    assert value("lease_expirations_total") == 0
    assert [value("jobs", status=status) for status in ("pending", "running", "dead")] == [5, 2, 1]
    assert [value("blocked_jobs", reason=reason) for reason in ("unsupported", "key", "tenant")] == [1, 0, 0]
    assert value("target_age_seconds") == 20
    assert value("lease_seconds") == 60
    assert value("timeout_seconds") == 30
    assert value("paused") == 0
    assert (value("oldest_message_age_seconds") or 0) >= 5
    assert (value("oldest_dead_job_age_seconds") or 0) > 0
    assert (value("longest_running_seconds") or 0) > 0
    shop = {"namespace": "shop", "queue": "jobs"}
    assert registry.get_sample_value("jobqueue_last_successful_observation_timestamp_seconds", shop) == 1000
    assert registry.get_sample_value("jobqueue_downstream_units", shop | {"capacity": "mailer", "state": "limit"}) == 10
    assert registry.get_sample_value("jobqueue_downstream_units", shop | {"capacity": "mailer", "state": "in_use"}) == 4
    assert registry.get_sample_value("jobqueue_notify_queue_usage_ratio", shop) == 0
    assert registry.get_sample_value("jobqueue_oldest_transaction_age_seconds", shop) is not None
    assert (registry.get_sample_value("jobqueue_table_bytes", shop | {"table": "body"}) or 0) > 0
    assert registry.get_sample_value("jobqueue_dead_tuples", shop | {"table": "lease"}) is not None


def test_two_queues_and_a_choice_of_classes_share_one_collector(snapshot: Snapshot) -> None:
    registry = registered(
        Observation("shop", "jobs", snapshot, classes=frozenset({"email"})), Observation("other", "jobs", snapshot)
    )
    idle = {"namespace": "shop", "queue": "jobs", "class": "idle"}
    assert registry.get_sample_value("jobqueue_ready_jobs", LABELS) == 5
    assert registry.get_sample_value("jobqueue_ready_jobs", idle) is None
    assert registry.get_sample_value("jobqueue_ready_jobs", idle | {"namespace": "other"}) == 0


def test_an_unreadable_queue_is_absent_and_never_zero(snapshot: Snapshot) -> None:
    blind = Observation("shop", "jobs", None, succeeded_at=1000.0)
    text = generate_latest(registered(blind, Observation("other", "jobs", snapshot))).decode()
    shop = [line for line in text.splitlines() if 'namespace="shop"' in line]
    assert len(shop) == 1
    assert shop[0].startswith("jobqueue_last_successful_observation_timestamp_seconds{")
    assert generate_latest(registered(Observation("shop", "jobs", None))) == b""


@pytest.mark.parametrize("error", [psycopg.OperationalError("away"), SchemaError("older"), TimeoutError()])
def test_a_failing_observation_exposes_nothing(error: Exception) -> None:
    def observe() -> list[Observation]:
        raise error

    registry = CollectorRegistry()
    registry.register(SnapshotCollector(observe))
    assert generate_latest(registry) == b""


def test_its_names_are_taken_at_registration() -> None:
    registry = registered()
    with pytest.raises(ValueError, match="jobqueue_ready_jobs"):
        registry.register(SnapshotCollector(lambda: ()))


def test_a_sample_never_misses_the_only_due_job(database: Database) -> None:
    with database.connect() as connection:
        queue.set_class(connection, None, "email", {})
        connection.execute(
            "INSERT INTO jobqueue.ready (id, run_after, lane, kind_version, class_id, priority, tenant_hash, key_hash,"
            " attempts, refunds, budget) SELECT -n, now() + interval '1 day', 0, 1, c.id, 0, 0, 0, 0, 0, 0"
            " FROM generate_series(1, 200000) n, jobqueue.class c WHERE c.name = 'email'"
        )
        queue.enqueue(connection, "email", "hello", {})
        looks = [decode(queue.snapshot(connection)).find("email") for _ in range(30)]
    for email in looks:
        assert email is not None
        assert email.estimated
        assert email.ready >= 1
        assert email.oldest_age_seconds > 0
