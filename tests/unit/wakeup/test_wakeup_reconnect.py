"""Retries grow and are jittered; an outage is logged at a bounded rate."""

import logging
import random

import pytest

from jobqueue.wakeup.reconnect import Backoff, Outage


def test_delays_grow_to_their_ceiling_are_jittered_and_start_over() -> None:
    backoff = Backoff(initial=1, longest=8, rng=random.Random(3))  # noqa: S311 - seeded on purpose
    delays = [backoff.next() for _ in range(200)]
    for delay, ceiling in zip(delays, [1, 2, 4, 8] + [8] * 196, strict=True):
        assert 0.1 * ceiling <= delay <= ceiling
    assert len(set(delays)) == 200
    backoff.reset()
    assert backoff.next() <= 1


def test_an_outage_of_an_hour_is_a_line_a_minute_and_a_last_one(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    outage = Outage(logging.getLogger("test"), "the broker", every=60, clock=lambda: now)
    caplog.set_level(logging.INFO)
    for second in range(3600):
        now = float(second)
        outage.failed("connection refused")
    outage.over()
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "the broker: connection refused; polling goes on"
    assert lines[1] == "the broker: connection refused (59 more failures since the last line); polling goes on"
    assert len(lines) == 61
    assert lines[-1] == "the broker: works again"


def test_a_flapping_server_is_not_spoken_of_each_time(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    outage = Outage(logging.getLogger("test"), "the broker", every=60, clock=lambda: now)
    caplog.set_level(logging.INFO)
    for second in range(59):
        now = float(second)
        outage.failed("connection reset")
        outage.over()
    assert len(caplog.records) == 2


def test_what_never_failed_does_not_work_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    Outage(logging.getLogger("test"), "the broker").over()
    assert not caplog.records
