"""Plan guards: a claim reads as many pages with a deep backlog as with a shallow one, whatever the backlog is made of.

Pages, not time: EXPLAIN (ANALYZE, BUFFERS) of the call counts those of all statements inside the function. Each case is
at 60,000 rows, where one wrong plan (a sequential scan, a sort of the backlog, a hash of it) reads 600 pages or more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jobqueue import queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.queue.stage import Stage, Worker

ROWS = 60_000
BATCH = 20
CLAIM_PAGES = 350  # measured: 161 to 199, eight a job for index and table on three sides
IDLE_PAGES = 100  # a claim that finds nothing, with two kinds; measured: 11 to 56


def _pages(stage: Stage, statement: str, params: list[Any]) -> int:
    """Run the call, undo it, and return the pages it read and dirtied, in memory or not."""
    with stage.admin.transaction(force_rollback=True):
        row = stage.admin.execute(f"EXPLAIN (ANALYZE, BUFFERS, TIMING off, FORMAT json) {statement}", params).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def _claim_pages(stage: Stage, worker: Worker, *, max_jobs: int = BATCH, turn: int = 1) -> int:
    query = "SELECT * FROM jobqueue.claim(%s, %s, %s, %s, NULL, NULL, NULL)"
    return _pages(stage, query, [worker.class_, worker.id, worker.request + turn, max_jobs])


def _warm(stage: Stage, worker: Worker) -> None:
    """Let the session plan its statements, so that the catalogue's pages do not count."""
    for turn in range(1, 9):
        _claim_pages(stage, worker, turn=turn)


def _deep(stage: Stage) -> None:
    stage.fill(ROWS)


def _scheduled(stage: Stage) -> None:
    stage.fill(ROWS, due_in=3600)
    stage.fill(200)


def _scheduled_in_a_better_priority(stage: Stage) -> None:
    stage.fill(ROWS, due_in=3600, priority=50)
    stage.fill(200)


def _unsupported_at_the_head(stage: Stage) -> None:
    stage.fill(ROWS, kind="unknown", due_in=-3600)
    stage.fill(200)


def _unsupported_in_a_better_priority(stage: Stage) -> None:
    stage.fill(ROWS, kind="unknown", priority=100)
    stage.fill(200)


def _other_classes(stage: Stage) -> None:
    stage.define("d")
    stage.fill(ROWS, class_="d", due_in=-3600)
    stage.fill(200)


def _parked(stage: Stage) -> None:
    stage.fill(ROWS, due_in=-3600)
    stage.admin.execute("UPDATE jobqueue.ready SET key_hash = 7, lane = jobqueue.parked_lane(7)")
    stage.admin.execute("VACUUM jobqueue.ready")
    stage.fill(200)


def _history(stage: Stage) -> None:
    """Done and dead ones, with their attempts."""
    stage.fill(ROWS)
    stage.admin.execute(
        "WITH gone AS (DELETE FROM jobqueue.ready RETURNING id, class_id)"
        " INSERT INTO jobqueue.outcome"
        " (id, token, worker_id, started_at, finished_at, class_id, attempts, refunds, budget, status)"
        " SELECT id, id, 1, clock_timestamp(), clock_timestamp(), class_id, 1, 0, 0,"
        "   (CASE WHEN id % 2 = 0 THEN 'x' ELSE 'd' END)::\"char\""
        " FROM gone"
    )
    stage.admin.execute(
        "INSERT INTO jobqueue.attempt (job_id, token, worker_id, started_at, finished_at, number, budget, outcome)"
        " SELECT id, id, 1, clock_timestamp(), clock_timestamp(), 1, 0, 'retry' FROM jobqueue.outcome"
    )
    stage.admin.execute("VACUUM ANALYZE jobqueue.ready")
    stage.fill(200)


def _in_flight(stage: Stage) -> None:
    """Others' leases."""
    stage.fill(ROWS)
    stage.admin.execute(
        "WITH gone AS (DELETE FROM jobqueue.ready RETURNING *)"
        " INSERT INTO jobqueue.lease"
        " SELECT id, id, clock_timestamp() + interval '1 hour', clock_timestamp(), run_after, 1, NULL, 0, 0,"
        "   class_id, 1, 1, 0, 0, false, false FROM gone"
    )
    stage.admin.execute("VACUUM ANALYZE jobqueue.ready")
    stage.fill(200)


BACKLOGS: dict[str, Callable[[Stage], None]] = {
    "deep": _deep,
    "scheduled": _scheduled,
    "scheduled in a better priority": _scheduled_in_a_better_priority,
    "unsupported at the head": _unsupported_at_the_head,
    "unsupported in a better priority": _unsupported_in_a_better_priority,
    "other classes": _other_classes,
    "parked": _parked,
    "history": _history,
    "in flight": _in_flight,
}


# Backlogs that hold nothing for the worker once the last few hundred jobs are gone.
FRUITLESS = {
    "scheduled",
    "scheduled in a better priority",
    "unsupported at the head",
    "unsupported in a better priority",
    "other classes",
    "parked",
}


@pytest.mark.parametrize("backlog", BACKLOGS)
def test_a_claim_reads_little_whatever_the_backlog(own: Stage, backlog: str) -> None:
    BACKLOGS[backlog](own)
    worker = own.worker(kinds=[("work", 1), ("other", 1)])
    _warm(own, worker)
    pages = _claim_pages(own, worker)
    assert pages < CLAIM_PAGES, f"{pages} pages for {BATCH} jobs"
    assert len(worker.claim(BATCH)) == BATCH
    if backlog in FRUITLESS:
        while worker.claim(200):
            pass
        own.admin.execute("VACUUM jobqueue.ready")
        pages = _claim_pages(own, worker)
        assert pages < IDLE_PAGES, f"{pages} pages for nothing"


def test_acknowledgements_and_heartbeats_read_their_own_rows_only(own: Stage) -> None:
    _in_flight(own)
    own.fill(ROWS)
    worker = own.worker()
    batch = worker.claim(BATCH)
    ids, tokens = [c.id for c in batch], [c.token for c in batch]
    calls: dict[str, tuple[list[Any], int]] = {
        "SELECT * FROM jobqueue.complete_many(%s, %s)": ([ids, tokens], 320),
        "SELECT * FROM jobqueue.extend(%s, %s, %s)": ([worker.id, ids, tokens], 370),
        "SELECT * FROM jobqueue.release_many(%s, %s, 'drain')": ([ids, tokens], 800),
        "SELECT * FROM jobqueue.heartbeat(%s)": ([worker.id], 40),
        "SELECT jobqueue.cancel(%s)": ([ids[0]], 40),
        "SELECT jobqueue.effect(%s, %s, 'mail:1')": ([ids[0], tokens[0]], 40),
    }
    for call, (params, most) in calls.items():
        for _ in range(8):
            pages = _pages(own, call, params)
        assert pages < most, f"{pages} pages for {call}"


def test_an_enqueue_reads_little_beside_many_keys(own: Stage) -> None:
    own.fill(ROWS)
    own.admin.execute(
        "INSERT INTO jobqueue.idempotency SELECT 'work', 'k' || id, id, '\\x00', created_at FROM jobqueue.body"
    )
    own.admin.execute("ANALYZE jobqueue.idempotency")
    for _ in range(8):
        pages = _pages(own, "SELECT * FROM jobqueue.enqueue('c', 'work', '{}', key => 'new')", [])
    assert pages < 50


def test_a_sweep_without_expired_leases_reads_the_leases_once(own: Stage) -> None:
    _history(own)
    own.worker().claim(100)
    for _ in range(8):
        pages = _pages(own, "SELECT * FROM jobqueue.sweep()", [])
    assert pages < 100, f"{pages} pages"


def test_a_fair_claim_among_many_tenants(own: Stage) -> None:
    own.define("c", fair_tenants=True)
    own.fill(ROWS)
    own.admin.execute("UPDATE jobqueue.ready SET tenant_hash = id % 500 + 1, lane = id % 500 + 1")
    own.admin.execute("VACUUM ANALYZE jobqueue.ready")
    worker = own.worker()
    _warm(own, worker)
    assert _claim_pages(own, worker) < 2 * CLAIM_PAGES


def test_heartbeats_touch_no_index(own: Stage) -> None:
    """Heap-only updates: what a heartbeat changes is in no index and no predicate."""
    own.enqueue_bulk(200)
    worker = own.worker()
    batch = worker.claim(200)
    own.admin.execute("VACUUM jobqueue.lease")
    ids, tokens = [c.id for c in batch], [c.token for c in batch]
    query = (
        "SELECT pg_stat_get_xact_tuples_updated(oid), pg_stat_get_xact_tuples_hot_updated(oid)"
        " FROM pg_class WHERE oid = 'jobqueue.lease'::regclass"
    )
    with own.admin.transaction():
        queue.extend(own.admin, worker.id, ids, tokens)
        row = own.admin.execute(query).fetchone()
    assert row is not None
    assert row[0] == 200
    assert row[1] >= 60  # as far as the pages have room: fillfactor 70, and pruning after the commit
    columns = own.admin.execute(
        "SELECT attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)"
        " WHERE i.indrelid IN ('jobqueue.lease'::regclass, 'jobqueue.worker'::regclass)"
    ).fetchall()
    assert not {"leased_until", "seen_at"} & {c[0] for c in columns}


def test_claims_under_a_held_snapshot_stay_cheap_with_a_floor(own: Stage) -> None:
    """Rows claimed meanwhile are dead and cannot be removed: the floor steps over them."""
    own.fill(ROWS)
    holder = own.connect(autocommit=False)
    holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    holder.execute("SELECT count(*) FROM jobqueue.ready")
    worker = own.worker()
    for _ in range(5):
        batch = worker.claim(5000)
        queue.complete_many(own.conn, [c.id for c in batch], [c.token for c in batch])
    floor = min(c.due_at for c in batch)
    query = "SELECT * FROM jobqueue.claim(%s, %s, %s, %s, NULL, NULL, NULL, %s)"
    for turn in range(8):
        pages = _pages(own, query, ["c", worker.id, worker.request + 1 + turn, BATCH, floor])
    assert pages < 2 * CLAIM_PAGES
    holder.rollback()
