"""What waits: how much of it is due, when the rest will be; exact for the few beside the many."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from integration.queue.stage import Stage

HORIZONS = (1, 2, 5, 10, 20, 30, 60, 120)


def soon(stage: Stage, class_: str = "c") -> tuple[int, ...]:
    """Return how many jobs become due within each horizon."""
    found = stage.snapshot(class_)["due_soon"]
    assert tuple(horizon for horizon, _ in found) == HORIZONS
    return tuple(count for _, count in found)


def enqueue_in(stage: Stage, *delays: float, class_: str = "c", **options: Any) -> None:
    """Enqueue a job for each delay."""
    now = stage.one("SELECT clock_timestamp()")
    for seconds in delays:
        stage.enqueue(class_, run_after=now + timedelta(seconds=seconds), **options)


def test_none_is_due_soon(stage: Stage) -> None:
    stage.enqueue()
    assert soon(stage) == (0,) * 8


def test_each_horizon_counts_what_is_due_within_it(stage: Stage) -> None:
    enqueue_in(stage, -5, 0.9, 1.9, 4, 4, 15, 25, 55, 119, 121, 5000)
    enqueue_in(stage, 4, priority=7, tenant="t", kind="other")
    assert soon(stage) == (1, 2, 5, 5, 6, 7, 8, 9)
    assert stage.snapshot()["scheduled"] == 11


def test_the_few_beside_a_hundred_thousand_are_not_missed(own: Stage) -> None:
    own.define("d")
    own.fill(100_000, due_in=86_400)
    enqueue_in(own, 3, 3.5, 8, 100)
    enqueue_in(own, 4, class_="d")
    enqueue_in(own, 4, priority=7, kind="other")
    for _ in range(5):
        assert soon(own) == (0, 0, 3, 4, 4, 4, 4, 5)
        assert soon(own, "d") == (0, 0, 1, 1, 1, 1, 1, 1)
    facts = own.snapshot()
    assert facts["estimated"] is True
    assert facts["scheduled"] == pytest.approx(100_005, rel=0.1)


def test_many_are_estimated(own: Stage) -> None:
    own.fill(60_000)
    own.admin.execute(
        "UPDATE jobqueue.ready SET run_after = clock_timestamp() + (0.5 + random() * 100) * interval '1 second'"
    )
    own.admin.execute("VACUUM jobqueue.ready")
    # One sample holds some 150 of those due within ten seconds, so it errs by 8 % (a standard deviation); 16 by 2 %.
    samples = [soon(own) for _ in range(16)]
    assert all(list(found) == sorted(found) for found in samples)
    found = [sum(counts) / len(samples) for counts in zip(*samples, strict=True)]
    for horizon, count in zip(HORIZONS[3:7], found[3:7], strict=True):
        assert count == pytest.approx(600 * horizon, rel=0.15)
    assert found[7] == pytest.approx(60_000, rel=0.1)


def test_a_small_class_beside_a_large_one_is_counted_exactly(own: Stage) -> None:
    own.define("d")
    own.worker("d")
    own.fill(100_000)
    own.enqueue_bulk(37, class_="d")
    own.enqueue_bulk(3, class_="d", kind="unknown", priority=9)
    enqueue_in(own, 500, 600, 700, class_="d")
    own.pass_time(16)
    own.enqueue_bulk(40, class_="d")
    for _ in range(5):
        facts = own.snapshot("d")
        assert (facts["ready"], facts["scheduled"], facts["estimated"]) == (80, 3, False)
        assert facts["blocked"]["unsupported"] == 3
        assert all(16 <= age < 26 for age in facts["ages"][:5])
        assert all(0 <= age < 10 for age in facts["ages"][5:])
    assert own.snapshot()["ready"] == pytest.approx(100_000, rel=0.05)


def test_after_a_burst_the_emptied_pages_do_not_matter(own: Stage) -> None:
    own.fill(60_000)
    own.admin.execute("DELETE FROM jobqueue.ready WHERE id % 100 > 0")
    facts = own.snapshot()
    assert (facts["ready"], facts["estimated"]) == (600, False)


def test_many_lanes_are_estimated_and_the_oldest_is_exact(own: Stage) -> None:
    own.define("c", fair_tenants=True)
    own.fill(60_000, due_in=-50)
    own.admin.execute("UPDATE jobqueue.ready SET tenant_hash = id % 3000 + 1, lane = id % 3000 + 1")
    own.admin.execute("VACUUM jobqueue.ready")
    own.enqueue(tenant="somebody")
    own.admin.execute(
        "UPDATE jobqueue.ready SET run_after = run_after - interval '900 seconds' WHERE id ="
        " (SELECT max(id) FROM jobqueue.ready)"
    )
    facts = own.snapshot()
    assert facts["ready"] == pytest.approx(60_001, rel=0.1)
    assert 900 <= facts["oldest_age"] < 940
    assert facts["ages"][0] == pytest.approx(facts["oldest_age"], abs=0.01)
    assert 50 <= facts["ages"][1] < 100
