"""The queue most teams write first, as bare SQL: one table, a partial index, a status column, SKIP LOCKED.

Claim and completion run on one connection, 100 rows each. Nothing else is done: no leases renewed, no fences, no record
of attempts. Prepared statements, which psycopg makes by itself, are on.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from bench.server import Server

BATCH = 100
TABLE = """
CREATE TABLE jobs (
  id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind         text        NOT NULL,
  payload      jsonb       NOT NULL,
  status       text        NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'running', 'done', 'failed')),
  attempts     int         NOT NULL DEFAULT 0,
  run_after    timestamptz NOT NULL DEFAULT now(),
  locked_until timestamptz,
  last_error   text,
  created_at   timestamptz NOT NULL DEFAULT now(),
  finished_at  timestamptz
);
CREATE INDEX jobs_pending_idx ON jobs (run_after) WHERE status = 'pending';
"""
CLAIM = """
UPDATE jobs SET status = 'running', locked_until = now() + interval '5 minutes', attempts = attempts + 1
 WHERE id IN (SELECT id FROM jobs WHERE status = 'pending' AND run_after <= now()
               ORDER BY run_after FOR UPDATE SKIP LOCKED LIMIT 100)
RETURNING id, kind, payload, attempts
"""
COMPLETE = "UPDATE jobs SET status = 'done', finished_at = now() WHERE id = ANY (%s)"


def prepare(server: Server, database: str, jobs: int) -> None:
    """Make the table with `jobs` due rows."""
    server.create(database)
    with server.connect(database) as conn:
        conn.execute(TABLE)
        conn.execute(
            "INSERT INTO jobs (kind, payload)"
            """ SELECT 'noop', jsonb_build_object('n', n) FROM generate_series(1, %s) AS g(n)""",
            [jobs],
        )
    server.settle(database)


def drain(dsn: str, jobs: int) -> dict[str, float]:
    """Work everything off; return jobs a second, and this process's time for one."""
    done = 0
    with psycopg.connect(dsn, autocommit=True) as conn:
        began, before = time.perf_counter(), time.process_time()
        while rows := conn.execute(CLAIM).fetchall():
            conn.execute(COMPLETE, [[row[0] for row in rows]])
            done += len(rows)
        took, spent = time.perf_counter() - began, time.process_time() - before
    if done != jobs:
        msg = f"worked off {done} of {jobs} jobs"
        raise AssertionError(msg)
    return {"rate": jobs / took, "client_us": spent / jobs * 1e6}
