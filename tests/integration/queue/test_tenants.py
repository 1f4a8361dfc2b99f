"""Fair tenants: they take turns, however much one of them enqueued, and each has its limit."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from jobqueue import queue

if TYPE_CHECKING:
    from integration.queue.stage import Stage


def test_a_small_tenant_is_not_behind_a_large_one(stage: Stage) -> None:
    stage.define("c", fair_tenants=True)
    stage.enqueue_bulk(500, tenant="large")
    small = [stage.enqueue(tenant=f"small-{n}") for n in range(3)]
    got = [c.id for c in stage.worker().claim(16)]
    assert len(got) == 16
    assert set(small) <= set(got)


def test_many_tenants_share_over_time(stage: Stage) -> None:
    stage.define("c", fair_tenants=True)
    for n in range(4):
        stage.enqueue_bulk(200, tenant=f"t{n}")
    worker = stage.worker()
    share: Counter[str | None] = Counter()
    for _ in range(25):
        batch = worker.claim(8)
        assert len(batch) == 8
        share.update(c.tenant for c in batch)
        queue.complete_many(stage.conn, [c.id for c in batch], [c.token for c in batch])
    assert sum(share.values()) == 200
    assert min(share.values()) >= 30


def test_a_lone_tenant_gets_the_whole_claim(stage: Stage) -> None:
    stage.define("c", fair_tenants=True)
    stage.enqueue_bulk(50, tenant="only")
    assert len(stage.worker().claim(40)) == 40


def test_without_fairness_the_oldest_come_first(stage: Stage) -> None:
    stage.enqueue_bulk(20, tenant="large")
    stage.enqueue(tenant="small")
    assert {c.tenant for c in stage.worker().claim(16)} == {"large"}


def test_jobs_without_a_tenant_are_claimed_beside_those_with_one(stage: Stage) -> None:
    stage.define("c", fair_tenants=True)
    stage.enqueue()
    stage.enqueue(tenant="t")
    assert {c.tenant for c in stage.worker().claim()} == {None, "t"}


def test_the_order_within_a_tenant(stage: Stage) -> None:
    stage.define("c", fair_tenants=True)
    jobs = [stage.enqueue(tenant="t") for _ in range(5)]
    worker = stage.worker()
    assert [worker.claim_one().id for _ in range(5)] == jobs


def test_a_tenants_limit(stage: Stage) -> None:
    stage.define("c", fair_tenants=True, tenant_limit=2)
    stage.enqueue_bulk(10, tenant="a")
    stage.enqueue_bulk(10, tenant="b")
    worker, other = stage.worker(), stage.worker()
    batch = worker.claim(20)
    assert Counter(c.tenant for c in batch) == {"a": 2, "b": 2}
    assert other.claim(20) == []
    first = next(c for c in batch if c.tenant == "a")
    queue.complete(stage.conn, first.id, first.token)
    assert [c.tenant for c in other.claim(20)] == ["a"]


def test_two_claims_at_once_keep_a_tenants_limit(stage: Stage) -> None:
    stage.define("c", fair_tenants=True, tenant_limit=1)
    stage.enqueue_bulk(4, tenant="a")
    first = stage.worker(conn=stage.connect(autocommit=False))
    second = stage.worker(conn=stage.connect(autocommit=False))
    assert len(first.claim()) == 1
    assert second.claim() == []
    first.conn.commit()
    second.conn.commit()


def test_turns_are_taken_within_a_priority(stage: Stage) -> None:
    stage.define("c", fair_tenants=True)
    stage.enqueue_bulk(20, tenant="low", priority=-1)
    stage.enqueue_bulk(20, tenant="high", priority=1)
    assert {c.tenant for c in stage.worker().claim(20)} == {"high"}


def test_a_retry_stays_in_its_tenants_turn(stage: Stage) -> None:
    stage.define("c", fair_tenants=True, tenant_limit=1)
    job = stage.enqueue(tenant="a")
    stage.enqueue(tenant="a")
    worker = stage.worker()
    claimed = worker.claim_one()
    assert claimed.id == job
    queue.release(stage.conn, job, claimed.token, reason="drain")
    assert worker.claim_one().id == job
    assert worker.claim() == []
