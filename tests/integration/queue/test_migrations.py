"""Migrating: by whom, into what, twice, at once; and what `check` says of a schema that does not fit."""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from jobqueue import migrate, queue
from jobqueue.errors import ConfigurationError, SchemaError
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.queue.stage import Stage
    from services.databases import Database


@pytest.fixture
def humble(empty_database: Database) -> Iterator[str]:
    """A user that is no superuser: CREATEROLE, and CREATE on its database."""
    name = f"humble_{secrets.token_hex(4)}"
    with empty_database.connect() as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN CREATEROLE").format(sql.Identifier(name)))
        admin.execute(
            sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(
                sql.Identifier(empty_database.name), sql.Identifier(name)
            )
        )
    yield name
    with empty_database.connect() as admin:
        rows = admin.execute("SELECT rolname FROM pg_roles WHERE rolname LIKE %s", [f"{name}\\_%"]).fetchall()
        for (each,) in [*rows, (name,)]:
            admin.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(str(each))))
        for (each,) in [*rows, (name,)]:
            admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(str(each))))


def test_a_user_with_createrole_migrates(empty_database: Database, humble: str) -> None:
    prefix = f"{humble}_q"
    with psycopg.connect(empty_database.as_user(humble), autocommit=True) as conn:
        done = migrate.apply(conn, role_prefix=prefix)
        assert len(done) == len(migrate.migrations())
        assert migrate.apply(conn, role_prefix=prefix) == []
        migrate.check(conn)
    with empty_database.connect() as admin:
        queue.set_class(admin, None, "c", {})
        assert queue.enqueue(admin, "c", "work", {}).created
        owner = admin.execute(
            "SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'jobqueue'"
        ).fetchone()
        assert owner == (f"{prefix}_owner",)
        may = admin.execute("SELECT has_schema_privilege(%s, 'jobqueue', 'USAGE')", [f"{prefix}_worker"]).fetchone()
        assert may == (True,)


def test_a_user_without_the_rights_is_told_which(empty_database: Database, humble: str) -> None:
    with empty_database.connect() as admin:
        admin.execute(
            sql.SQL("REVOKE CREATE ON DATABASE {} FROM {}").format(
                sql.Identifier(empty_database.name), sql.Identifier(humble)
            )
        )
    with (
        psycopg.connect(empty_database.as_user(humble), autocommit=True) as conn,
        pytest.raises(SchemaError, match=r"may not migrate: .*CREATE on the database, and CREATEROLE"),
    ):
        migrate.apply(conn, role_prefix=f"{humble}_q")


def test_two_schemas_side_by_side(empty_database: Database) -> None:
    with empty_database.connect() as admin:
        for schema in ("jobs_a", "jobs_b"):
            migrate.apply(admin, schema=schema)
            queue.set_class(admin, None, "c", {}, schema=schema)
        job = queue.enqueue(admin, "c", "work", {}, key="k", schema="jobs_a")
        assert job.created
        assert queue.enqueue(admin, "c", "work", {"n": 1}, key="k", schema="jobs_b").created
        worker = queue.register_worker(admin, "w", "c", [("work", 1)], slots=1, schema="jobs_b").worker
        [claimed] = queue.claim(admin, "c", worker, 1, max_jobs=5, schema="jobs_b")
        assert claimed.payload == {"n": 1}
        assert admin.execute("SELECT status FROM jobs_a.jobs").fetchall() == [("pending",)]


def test_two_schemas_do_not_share_locks_or_channels(empty_database: Database) -> None:
    """A sweep and a claim of a key in one schema leave the other's free; each notifies its own channel."""
    with empty_database.connect() as admin:
        for schema in ("jobs_a", "jobs_b"):
            migrate.apply(admin, schema=schema)
            queue.set_class(admin, None, "c", {}, schema=schema)
            queue.enqueue(admin, "c", "work", {}, concurrency_key="k", schema=schema)
        workers = {
            s: queue.register_worker(admin, "w", "c", [("work", 1)], slots=1, schema=s).worker
            for s in ("jobs_a", "jobs_b")
        }
        with empty_database.connect(autocommit=False) as holder:
            assert len(queue.claim(holder, "c", workers["jobs_a"], 1, max_jobs=1, schema="jobs_a")) == 1
            queue.sweep(holder, schema="jobs_a")
            assert len(queue.claim(admin, "c", workers["jobs_b"], 1, max_jobs=1, schema="jobs_b")) == 1
        with empty_database.connect() as listener:
            listener.execute('LISTEN "jobqueue:jobs_a"; LISTEN "jobqueue:jobs_b"')
            queue.sleeping(admin, workers["jobs_b"], "c", asleep=True, schema="jobs_b")
            queue.enqueue(admin, "c", "work", {}, schema="jobs_b")
            [heard] = list(listener.notifies(timeout=20, stop_after=1))
            assert (heard.channel, heard.payload) == ("jobqueue:jobs_b", "class:c")


def test_the_schema_stands_beside_other_tables(empty_database: Database) -> None:
    with empty_database.connect() as admin:
        admin.execute("CREATE SCHEMA jobqueue; CREATE TABLE public.jobs (id int); CREATE TABLE public.class (id int)")
        migrate.apply(admin)
        queue.set_class(admin, None, "c", {})
        assert queue.enqueue(admin, "c", "work", {}).created


def test_many_migrations_at_once(empty_database: Database) -> None:
    """Started together, with roles to be created: one does it all, the others find it done."""
    results: list[list[str]] = []
    start = threading.Barrier(4)
    prefix = f"many_{secrets.token_hex(3)}"

    def run() -> None:
        with empty_database.connect() as conn:
            start.wait()
            results.append(migrate.apply(conn, role_prefix=prefix))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(results) == 4, within=60, what="four migrations")
    assert sorted(len(r) for r in results) == [0, 0, 0, len(migrate.migrations())]


def test_two_databases_migrated_at_once_share_new_roles(empty_database: Database, database: Database) -> None:
    prefix = f"both_{secrets.token_hex(3)}"
    results: list[int] = []
    start = threading.Barrier(2)

    def run(one: Database) -> None:
        with one.connect() as conn:
            start.wait()
            results.append(len(migrate.apply(conn, schema="fresh", role_prefix=prefix)))

    threads = [threading.Thread(target=run, args=[one]) for one in (empty_database, database)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(results) == 2, within=60, what="two migrations")
    assert results == [len(migrate.migrations())] * 2


def test_a_table_that_is_in_use_is_waited_for(own: Stage) -> None:
    """Nothing to do takes no lock worth waiting for: migrating again goes through beside a transaction in flight."""
    busy = own.connect(autocommit=False)
    queue.enqueue(busy, "c", "work", {})
    assert migrate.apply(own.admin) == []
    busy.rollback()


def test_check_says_which_command(own: Stage, empty_database: Database) -> None:
    with (
        empty_database.connect() as conn,
        pytest.raises(SchemaError, match=r"no queue in schema .*run: jobqueue migrate$"),
    ):
        migrate.check(conn)
    with pytest.raises(SchemaError, match=r"run: jobqueue migrate --schema elsewhere$"):
        migrate.check(own.admin, schema="elsewhere")
    own.admin.execute("DELETE FROM jobqueue.migration WHERE version = %s", [migrate.latest()])
    with pytest.raises(SchemaError, match=r"is at version \d+, this release needs \d+; run: jobqueue migrate$"):
        migrate.check(own.admin)
    own.admin.execute("INSERT INTO jobqueue.migration (version, name) VALUES (999, 'from tomorrow')")
    migrate.check(own.admin)  # newer, and this release may go on
    own.admin.execute("UPDATE jobqueue.migration SET oldest_release = 999 WHERE version = 999")
    with pytest.raises(SchemaError, match=r"needs release 999 or newer; .*upgrade the package"):
        migrate.check(own.admin)
    with pytest.raises(SchemaError, match="upgrade the package"):
        migrate.apply(own.admin)


@pytest.mark.parametrize("schema", ["", "a-b", "A", "x" * 41, 'a"b', "1a", "a;b"])
def test_names_that_would_need_care_are_refused(own: Stage, schema: str) -> None:
    with pytest.raises(ConfigurationError, match="schema: "):
        migrate.apply(own.admin, schema=schema)
    with pytest.raises(ConfigurationError, match="role prefix: "):
        migrate.apply(own.admin, role_prefix=schema)
