"""Invariant 2, the lost reply: the COMMIT reached the server, its answer never reached the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from jobqueue import queue

if TYPE_CHECKING:
    from integration.queue.stage import Connection, Stage
    from services.cutting_proxy import CuttingProxy


@pytest.fixture
def cut(direct: Stage, proxy: CuttingProxy) -> Connection:
    """A connection in a transaction that the proxy may cut."""
    return direct.connect(autocommit=False, dsn=proxy.dsn(direct.database.direct))


def _commit_without_reply(conn: Connection, proxy: CuttingProxy) -> None:
    proxy.cut_reply_after(b"COMMIT")
    with pytest.raises(psycopg.OperationalError):
        conn.commit()


def test_a_lost_reply_to_complete(direct: Stage, cut: Connection, proxy: CuttingProxy) -> None:
    job = direct.enqueue()
    claimed = direct.worker().claim_one()
    assert queue.complete(cut, job, claimed.token) == "done"
    _commit_without_reply(cut, proxy)
    assert direct.status(job) == "done"
    assert queue.complete(direct.conn, job, claimed.token) == "already"


@pytest.mark.parametrize("outcome", ["retry", "dead"])
def test_a_lost_reply_to_fail(direct: Stage, cut: Connection, proxy: CuttingProxy, outcome: str) -> None:
    job = direct.enqueue()
    claimed = direct.worker().claim_one()
    assert queue.fail(cut, job, claimed.token, "boom", outcome=outcome).result == outcome
    _commit_without_reply(cut, proxy)
    before = direct.job(job)
    assert queue.fail(direct.conn, job, claimed.token, "boom", outcome=outcome).result == "already"
    assert direct.job(job) == before
    assert len(direct.history(job)) == 1


def test_a_lost_reply_to_claim(direct: Stage, cut: Connection, proxy: CuttingProxy) -> None:
    jobs = [direct.enqueue() for _ in range(3)]
    worker = direct.worker()
    known = worker.claim_one()
    worker.conn = cut
    assert len(worker.claim()) == 2
    _commit_without_reply(cut, proxy)
    assert [direct.status(j) for j in jobs] == ["running"] * 3
    assert queue.recover(direct.conn, worker.id, worker.request, [known.token]) == 2
    assert [direct.job(j)[:2] for j in jobs] == [("running", 1), ("pending", 0), ("pending", 0)]
    worker.conn = direct.conn
    assert [c.id for c in worker.claim()] == jobs[1:]


def test_a_lost_reply_to_an_effect_with_its_completion(direct: Stage, cut: Connection, proxy: CuttingProxy) -> None:
    job = direct.enqueue()
    claimed = direct.worker().claim_one()
    assert queue.effect(cut, job, claimed.token, "mail:1") is True
    assert queue.complete(cut, job, claimed.token) == "done"
    _commit_without_reply(cut, proxy)
    assert direct.one("SELECT count(*) FROM jobqueue.effect WHERE key = 'mail:1'") == 1
    assert queue.complete(direct.conn, job, claimed.token) == "already"


@pytest.mark.parametrize("verb", ["complete", "claim"])
def test_a_commit_that_never_arrives_did_not_happen(
    direct: Stage, cut: Connection, proxy: CuttingProxy, verb: str
) -> None:
    job = direct.enqueue()
    worker = direct.worker()
    if verb == "complete":
        claimed = worker.claim_one()
        queue.complete(cut, job, claimed.token)
    else:
        worker.conn = cut
        worker.claim_one()
    proxy.cut_before(b"COMMIT")
    with pytest.raises(psycopg.OperationalError):
        cut.commit()
    if verb == "complete":
        assert queue.complete(direct.conn, job, claimed.token) == "done"
    else:
        assert queue.recover(direct.conn, worker.id, worker.request, []) == 0
        assert direct.job(job)[:2] == ("pending", 0)
