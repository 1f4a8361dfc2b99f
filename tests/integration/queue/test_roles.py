"""Who may do what: every role against every function, table and view, and PUBLIC against all of them."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from jobqueue import migrate, queue
from jobqueue.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.queue.stage import Stage

ROLES = ("producer", "worker", "operator", "reader", "support")

# function: the roles that may execute it; a function not named here is for nobody
MAY_EXECUTE: dict[str, set[str]] = {
    "enqueue": {"producer"},
    "enqueue_many": {"producer"},
    "claim": {"worker"},
    "extend": {"worker"},
    "heartbeat": {"worker"},
    "complete": {"worker"},
    "complete_many": {"worker"},
    "fail": {"worker"},
    "fail_many": {"worker"},
    "release": {"worker"},
    "release_many": {"worker"},
    "snooze": {"worker"},
    "snooze_many": {"worker"},
    "checkpoint": {"worker"},
    "effect": {"worker"},
    "recover": {"worker"},
    "register_worker": {"worker"},
    "understand": {"worker"},
    "forget_worker": {"worker", "operator"},
    "sleeping": {"worker", "operator"},
    "waiting": {"worker", "operator"},
    "sweep": {"worker", "operator"},
    "maintain": {"worker", "operator"},  # without an operator, the workers do it
    "lead": {"operator"},
    "set_class": {"operator"},
    "set_downstream": {"operator"},
    "set_paused": {"operator"},
    "remember": {"operator"},
    "retire_worker": {"operator"},
    "unretire_worker": {"operator"},
    "snapshot": {"operator", "reader", "support"},
    "cancel": {"support"},
    "redrive": {"support"},
    "redrive_where": {"support"},
    "redact": {"support"},
}
# table or view: the roles that may read all of it; nobody may write any
MAY_READ: dict[str, set[str]] = {
    "jobs": {"support"},
    "attempts": {"reader", "support"},
    "workers": {"operator", "reader", "support"},
    "migration": set(ROLES),
}
WITHOUT_PAYLOAD = {"jobs": {"reader"}}


def _functions(conn: psycopg.Connection[object]) -> list[tuple[int, str]]:
    return conn.execute(  # type: ignore[return-value]
        "SELECT oid::int, proname FROM pg_proc WHERE pronamespace = 'jobqueue'::regnamespace ORDER BY proname"
    ).fetchall()


def _relations(conn: psycopg.Connection[object]) -> list[tuple[int, str, str]]:
    return conn.execute(  # type: ignore[return-value]
        "SELECT oid::int, relname, relkind FROM pg_class WHERE relnamespace = 'jobqueue'::regnamespace"
        " AND relkind IN ('r', 'p', 'v', 'm', 'S', 'f') ORDER BY relname"
    ).fetchall()


@pytest.mark.parametrize("role", ROLES)
def test_every_function_for_every_role(direct: Stage, role: str) -> None:
    functions = _functions(direct.admin)
    assert {name for _, name in functions} >= set(MAY_EXECUTE)
    for oid, name in functions:
        may = direct.one("SELECT has_function_privilege(%s, %s, 'EXECUTE')", [f"jobqueue_{role}", oid])
        assert may is (role in MAY_EXECUTE.get(name, set())), f"{role} and {name}"


@pytest.mark.parametrize("role", ROLES)
def test_every_table_and_view_for_every_role(direct: Stage, role: str) -> None:
    relations = _relations(direct.admin)
    assert len(relations) > 20
    for oid, name, kind in relations:
        reads = "USAGE" if kind == "S" else "SELECT"
        check = "has_sequence_privilege" if kind == "S" else "has_table_privilege"
        may = direct.one(f"SELECT {check}(%s, %s, %s)", [f"jobqueue_{role}", oid, reads])
        assert may is (role in MAY_READ.get(name, set())), f"{role} reads {name}"
        for write in (
            ("UPDATE",) if kind == "S" else ("INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")
        ):
            may = direct.one(f"SELECT {check}(%s, %s, %s)", [f"jobqueue_{role}", oid, write])
            assert may is False, f"{role} may {write} {name}"


@pytest.mark.parametrize("role", ROLES)
def test_columns_for_those_who_read_without_the_payload(direct: Stage, role: str) -> None:
    rows = direct.admin.execute(
        "SELECT c.oid::int, relname, attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid"
        " WHERE relnamespace = 'jobqueue'::regnamespace AND relkind IN ('r', 'p', 'v') AND attnum > 0"
    ).fetchall()
    for oid, relation, column in rows:
        all_of_it = role in MAY_READ.get(relation, set())
        some_of_it = role in WITHOUT_PAYLOAD.get(relation, set()) and column != "payload"
        may = direct.one("SELECT has_column_privilege(%s, %s, %s, 'SELECT')", [f"jobqueue_{role}", oid, column])
        assert may is (all_of_it or some_of_it), f"{role} reads {relation}.{column}"


def test_public_has_nothing(direct: Stage) -> None:
    assert direct.one("SELECT has_schema_privilege('public', 'jobqueue', 'USAGE')") is False
    for oid, name in _functions(direct.admin):
        assert direct.one("SELECT has_function_privilege('public', %s::int, 'EXECUTE')", [oid]) is False, name
    for oid, name, kind in _relations(direct.admin):
        if kind != "S":
            assert direct.one("SELECT has_table_privilege('public', %s::int, 'SELECT')", [oid]) is False, name


def test_callable_functions_run_as_the_owner_with_a_fixed_path(direct: Stage) -> None:
    rows = direct.admin.execute(
        "SELECT proname, prosecdef, proconfig, pg_get_userbyid(proowner), proacl::text FROM pg_proc"
        " WHERE pronamespace = 'jobqueue'::regnamespace"
    ).fetchall()
    for name, definer, config, owner, _ in rows:
        assert owner == "jobqueue_owner", name
        if name in MAY_EXECUTE:
            assert definer is True, name
            assert "search_path=pg_catalog, pg_temp" in (config or []), name
        else:
            assert definer is False, f"{name} is internal"


def test_no_function_has_an_overload(direct: Stage) -> None:
    names = [name for _, name in _functions(direct.admin)]
    assert sorted(set(names)) == names


def test_the_owner_cannot_log_in_and_owns_everything(direct: Stage) -> None:
    assert direct.one("SELECT rolcanlogin OR rolsuper FROM pg_roles WHERE rolname = 'jobqueue_owner'") is False
    owners = direct.admin.execute(
        "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace = 'jobqueue'::regnamespace"
    ).fetchall()
    assert owners == [("jobqueue_owner",)]


@pytest.fixture
def login(direct: Stage) -> Iterator[str]:
    """A role that may log in and has nothing yet."""
    name = f"login_{secrets.token_hex(4)}"
    direct.admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
    yield name
    direct.admin.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(name)))


def _as(direct: Stage, login: str, role: str) -> psycopg.Connection[object]:
    direct.admin.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(f"jobqueue_{role}"), sql.Identifier(login)))
    return direct.connect(dsn=direct.database.as_user(login))


def test_a_life_through_the_roles(direct: Stage, login: str) -> None:
    """What the roles may, they can: each step by the role it belongs to."""
    job = queue.enqueue(_as(direct, login, "producer"), "c", "work", {"n": 1}).id
    direct.admin.execute(sql.SQL("REVOKE jobqueue_producer FROM {}").format(sql.Identifier(login)))
    conn = _as(direct, login, "worker")
    worker = queue.register_worker(conn, "w", "c", [("work", 1)], slots=1).worker
    [claimed] = queue.claim(conn, "c", worker, 1, max_jobs=1)
    queue.effect(conn, job, claimed.token, "mail:1")
    queue.fail(conn, job, claimed.token, "boom", outcome="dead")
    queue.sweep(conn)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        queue.enqueue(conn, "c", "work", {})
    direct.admin.execute(sql.SQL("REVOKE jobqueue_worker FROM {}").format(sql.Identifier(login)))
    conn = _as(direct, login, "support")
    assert queue.redrive(conn, [job])[0].result == "redriven"
    assert conn.execute("SELECT payload FROM jobqueue.jobs").fetchall() == [({"n": 1},)]
    direct.admin.execute(sql.SQL("REVOKE jobqueue_support FROM {}").format(sql.Identifier(login)))
    conn = _as(direct, login, "reader")
    assert conn.execute("SELECT id, status FROM jobqueue.jobs").fetchall() == [(job, "pending")]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute("SELECT payload FROM jobqueue.jobs")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute("SELECT * FROM jobqueue.jobs")
    direct.admin.execute(sql.SQL("REVOKE jobqueue_reader FROM {}").format(sql.Identifier(login)))
    conn = _as(direct, login, "operator")
    assert queue.snapshot(conn)["classes"][0]["ready"] == 1
    queue.set_paused(conn, queue.lead(conn, "operator"), "c", paused=True)
    queue.maintain(conn)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        queue.cancel(conn, job)


def test_a_stranger_is_told_what_to_ask_for(direct: Stage, login: str) -> None:
    conn = direct.connect(dsn=direct.database.as_user(login))
    with pytest.raises(SchemaError, match=r"no access to schema 'jobqueue'.*jobqueue_worker"):
        migrate.check(conn)


def test_a_temporary_function_does_not_get_in_the_way(direct: Stage, login: str) -> None:
    """The definer's rights cannot be borrowed by a table or function of the caller's own."""
    conn = _as(direct, login, "producer")
    conn.execute("CREATE TEMP TABLE body (id bigint); CREATE TEMP TABLE class (name text)")
    conn.execute("CREATE FUNCTION pg_temp.length(text) RETURNS int LANGUAGE sql AS 'SELECT 1/0'")
    conn.execute("SET search_path = pg_temp, public")
    assert queue.enqueue(conn, "c", "work", {}, key="k").created
