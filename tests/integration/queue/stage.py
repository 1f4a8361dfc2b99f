"""What the queue's tests act with: a database, workers in it, and a way to let time pass without waiting.

Everything goes through the verbs of `jobqueue.queue`; `admin` looks at the tables behind them, as a superuser.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import psycopg
from psycopg import sql

from jobqueue import queue
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from services.databases import Database

P = ParamSpec("P")
T = TypeVar("T")
Connection = psycopg.Connection[Any]

KIND = ("work", 1)
_BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
SETTLE_WITHIN = 20.0  # seconds that a blocked statement may take to be seen, or a thread to end

# Every moment the queue stores. Its clock is not ours to move: subtracting from all of these is time passing.
_MOMENTS = {
    "ready": ("run_after",),
    "lease": ("leased_until", "started_at", "due_at"),
    "outcome": ("started_at", "finished_at"),
    "attempt": ("started_at", "finished_at"),
    "body": ("created_at",),
    "effect": ("recorded_at",),
    "idempotency": ("created_at",),
    "worker": ("seen_at", "registered_at"),
    "id_range": ("created_at", "closed_at"),
}
_PASS = sql.SQL(";").join(
    sql.SQL("UPDATE jobqueue.{} SET {}").format(
        sql.Identifier(table),
        sql.SQL(", ").join(
            sql.SQL("{0} = {0} - make_interval(secs => {1})").format(sql.Identifier(c), sql.Placeholder("s"))
            for c in columns
        ),
    )
    for table, columns in _MOMENTS.items()
)


class Job(NamedTuple):
    """The facts of a job that most tests ask about."""

    status: str
    attempts: int
    reason: str | None
    last_error: str | None


class Attempt(NamedTuple):
    """A row of the history."""

    budget: int
    number: int
    outcome: str
    worker: str
    error: str | None
    ended: bool


@dataclass
class Worker:
    """A registered worker with a connection of its own."""

    stage: Stage
    conn: Connection
    id: int
    class_: str
    admitted: bool
    request: int = 0

    def claim(self, max_jobs: int = 10, **options: Any) -> list[queue.Claimed]:
        """Claim with the next request's number."""
        self.request += 1
        return queue.claim(self.conn, self.class_, self.id, self.request, max_jobs=max_jobs, **options)

    def claim_one(self, **options: Any) -> queue.Claimed:
        """Claim exactly one job."""
        [job] = self.claim(1, **options)
        return job

    def claim_any(self, max_jobs: int = 10) -> list[queue.Claimed]:
        """Claim until something comes, twice at most: plain jobs and suspects are looked for in turns."""
        return self.claim(max_jobs) or self.claim(max_jobs)


@dataclass
class Stage:
    """A migrated database, reached as the test wants (`dsn`), and looked at directly (`admin`)."""

    database: Database
    admin: Connection
    conn: Connection
    _opened: list[Connection] = field(default_factory=list)
    _names: int = 0

    @classmethod
    def on(cls, database: Database) -> Stage:
        """Open the two connections."""
        admin = psycopg.connect(database.direct, autocommit=True)
        conn = psycopg.connect(database, autocommit=True, prepare_threshold=None)
        return cls(database, admin, conn)

    def close(self) -> None:
        """Close every connection."""
        for each in (*self._opened, self.conn, self.admin):
            each.close()

    def connect(self, *, autocommit: bool = True, dsn: str | None = None) -> Connection:
        """Open one more connection of the kind under test."""
        conn = psycopg.connect(dsn or self.database, autocommit=autocommit, prepare_threshold=None)
        self._opened.append(conn)
        return conn

    def define(self, name: str = "c", **settings: Any) -> str:
        """Register a class, with short backoffs unless said otherwise."""
        queue.set_class(self.admin, None, name, {"lease_seconds": 60, **settings})
        return name

    def enqueue(self, class_: str = "c", kind: str = "work", payload: Any = None, **options: Any) -> int:
        """Enqueue one job and return its id."""
        return queue.enqueue(self.conn, class_, kind, {} if payload is None else payload, **options).id

    def enqueue_bulk(self, count: int, class_: str = "c", kind: str = "work", **options: Any) -> None:
        """Enqueue many alike, in the database itself."""
        given = [sql.SQL("{} => {}").format(sql.Identifier(o), sql.Placeholder(o)) for o in options]
        arguments = sql.SQL(", ").join([sql.SQL("%(c)s, %(k)s, '{{}}'").format(), *given])
        self.admin.execute(
            sql.SQL("SELECT jobqueue.enqueue({}) FROM generate_series(1, %(n)s)").format(arguments),
            {"n": count, "c": class_, "k": kind, **options},
        )

    def fill(self, count: int, *, class_: str = "c", kind: str = "work", priority: int = 0, due_in: float = 0) -> None:
        """Write many waiting jobs straight into the tables, a microsecond apart, and analyse them."""
        self.admin.execute(
            """
            WITH c AS (SELECT id FROM jobqueue.class WHERE name = %(c)s),
            n AS MATERIALIZED (SELECT nextval('jobqueue.job_id') AS id, g FROM generate_series(1, %(n)s) AS g),
            b AS (
              INSERT INTO jobqueue.body (id, created_at, version, class_id, priority, max_attempts, kind, payload)
              SELECT n.id, clock_timestamp(), 1, c.id, %(p)s, 10, %(k)s, '{}' FROM n, c)
            INSERT INTO jobqueue.ready
              (id, run_after, lane, kind_version, class_id, priority, tenant_hash, key_hash, attempts, refunds, budget)
            SELECT n.id, clock_timestamp() + make_interval(secs => %(d)s + g / 1e6 - 1), 0,
                   jobqueue.kind_version(%(k)s, 1), c.id, %(p)s, 0, 0, 0, 0, 0 FROM n, c
            """,
            {"n": count, "c": class_, "k": kind, "p": priority, "d": due_in},
        )
        self.admin.execute("ANALYZE jobqueue.ready")

    def worker(
        self,
        class_: str = "c",
        kinds: Sequence[tuple[str, int]] = (KIND,),
        *,
        slots: int = 10,
        name: str | None = None,
        conn: Connection | None = None,
    ) -> Worker:
        """Register a worker."""
        self._names += 1
        made = queue.register_worker(self.conn, name or f"w{self._names}", class_, kinds, slots=slots)
        return Worker(self, conn or self.conn, made.worker, class_, made.admitted)

    def pass_time(self, seconds: float) -> None:
        """Let time pass: every stored moment moves into the past."""
        psycopg.ClientCursor(self.admin).execute(_PASS, {"s": seconds})

    def expire(self, job: int) -> None:
        """Let the lease of one job run out."""
        self.admin.execute("UPDATE jobqueue.lease SET leased_until = clock_timestamp() WHERE id = %s", [job])

    def sweep(self) -> queue.Swept:
        """Sweep once."""
        return queue.sweep(self.conn)

    def job(self, job: int) -> Job:
        """Look a job up in the view."""
        row = self.admin.execute(
            "SELECT status, attempts, reason, last_error FROM jobqueue.jobs WHERE id = %s", [job]
        ).fetchall()
        assert len(row) == 1, f"job {job} is in {len(row)} places"
        return Job(*row[0])

    def status(self, job: int) -> str:
        """Return a job's status."""
        return self.job(job).status

    def history(self, job: int) -> list[Attempt]:
        """Return a job's attempts, oldest first."""
        rows = self.admin.execute(
            "SELECT budget, number, outcome, worker, error, finished_at IS NOT NULL FROM jobqueue.attempts"
            " WHERE job_id = %s ORDER BY budget, started_at, finished_at NULLS LAST",
            [job],
        )
        return [Attempt(*row) for row in rows]

    def one(self, query: str, params: Sequence[Any] = ()) -> Any:
        """Return the first column of the first row, asked as a superuser."""
        row = self.admin.execute(query, params).fetchone()
        return row[0] if row else None

    def snapshot(self, class_: str = "c") -> dict[str, Any]:
        """Return the snapshot's facts of one class."""
        [facts] = [c for c in queue.snapshot(self.conn)["classes"] if c["class"] == class_]
        assert isinstance(facts, dict)
        return facts

    def background(self, action: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call that may block in a thread; `.result(SETTLE_WITHIN)` ends it."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(action(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - handed over to the test's thread
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future

    def wait_until_blocked(self, count: int = 1) -> None:
        """Wait until that many backends of this database wait for a lock."""
        eventually(
            lambda: self.one(_BLOCKED) >= count,
            within=SETTLE_WITHIN,
            what=f"{count} blocked statements",
        )


def seconds(value: float) -> timedelta:
    """Return a duration."""
    return timedelta(seconds=value)
