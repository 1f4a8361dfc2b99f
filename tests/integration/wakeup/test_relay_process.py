"""The relay as a process: relays, tells Prometheus, ends on SIGTERM."""

from __future__ import annotations

import signal
import sys
import urllib.request
from typing import TYPE_CHECKING

from jobqueue import queue
from services.accounts import free_port
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.databases import Database
    from services.processes import Process
    from services.rabbitmq import Broker

COMMAND = ("-c", "import sys; from jobqueue.cli import main; sys.exit(main())", "relay", "--poll-interval", "0.5")


def test_it_relays_tells_and_ends(migrated: Database, broker: Broker, run: Callable[..., Process]) -> None:
    port = free_port()
    process = run(
        sys.executable,
        *COMMAND,
        env={
            "JOBQUEUE_DSN": migrated.dsn,
            "JOBQUEUE_BROKER_URL": broker.url,
            "JOBQUEUE_CLASSES": "email,sms",
            "JOBQUEUE_METRICS_PORT": str(port),
            "JOBQUEUE_NAMESPACE": "shop",
        },
    )
    with migrated.connect() as connection:
        queue.enqueue(connection, "email", "hello", {})

    def metrics() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as answer:
                text: str = answer.read().decode()
                return text
        except OSError:
            return ""

    eventually(lambda: 'jobqueue_relay_published_total{namespace="shop",queue=""} 1.0' in metrics(), within=20)
    assert "jobqueue_relay_lag_seconds{" in metrics()
    process.signal(signal.SIGTERM)
    assert process.wait(within=10) == 0
    assert "Traceback" not in process.text
    with migrated.connect() as connection:
        assert connection.execute("SELECT FROM jobqueue.sleeper").rowcount == 0


def test_a_broker_that_is_away_is_retried_and_its_lag_unknown(migrated: Database, run: Callable[..., Process]) -> None:
    port = free_port()
    process = run(
        sys.executable,
        *COMMAND,
        env={
            "JOBQUEUE_DSN": migrated.dsn,
            "JOBQUEUE_BROKER_URL": f"amqp://guest:guest@127.0.0.1:{free_port()}/",
            "JOBQUEUE_CLASSES": "email",
            "JOBQUEUE_METRICS_PORT": str(port),
        },
    )
    process.wait_for_line("the relay: .*polling goes on")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as answer:
        text = answer.read().decode()
    assert "jobqueue_relay_failures_total" in text
    assert "jobqueue_relay_lag_seconds{" not in text
    process.signal(signal.SIGTERM)
    assert process.wait(within=10) == 0
    assert "guest:guest" not in process.text
