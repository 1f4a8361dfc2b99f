"""The services themselves: a test that trusts a broken fixture proves nothing."""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import pq

from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.cutting_proxy import CuttingProxy
    from services.databases import Database
    from services.postgres import Mode, Server
    from services.processes import Process


def test_a_database_is_migrated_and_has_the_class_default(database: Database) -> None:
    with database.connect() as connection:
        created = connection.execute("select created from jobqueue.enqueue('default', 'a', '{}')").fetchall()
    assert created == [(True,)]


def test_databases_do_not_see_each_other(database: Database, empty_database: Database) -> None:
    with empty_database.connect() as connection:
        row = connection.execute("select current_database(), to_regnamespace('jobqueue')").fetchone()
    assert row == (empty_database.name, None)
    assert database.name != empty_database.name


def test_the_version_is_the_one_asked_for(pg: Server) -> None:
    with pg.admin() as connection:
        assert str(connection.info.server_version // 10000) == os.environ.get("JOBQUEUE_TEST_PG", "18")


def test_a_dsn_is_direct_and_pooled(dsn: Database, request: pytest.FixtureRequest) -> None:
    pooled = "pgbouncer" in request.node.name
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute("select current_database()").fetchone()
        assert row == (dsn.name,)
        assert (connection.info.port != dsn.server.port) is pooled


@pytest.mark.parametrize("mode", ["fast", "immediate", "kill"])
def test_what_was_committed_survives_each_way_to_restart(pg: Server, empty_database: Database, mode: Mode) -> None:
    with empty_database.connect() as connection:
        connection.execute("create table kept as select 1 as n")
    before = pg.pid
    pg.restart(mode)
    assert pg.pid != before
    with empty_database.connect() as connection:
        assert connection.execute("select n from kept").fetchall() == [(1,)]


def test_a_stopped_server_refuses_until_it_is_started(pg: Server) -> None:
    pg.stop("immediate")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(pg.dsn())
    pg.start()
    pg.admin().close()


def test_a_killed_backend_is_gone(pg: Server, empty_database: Database) -> None:
    with closing(empty_database.connect()) as victim:  # leaving psycopg's own block would send a COMMIT
        pg.kill_backend(victim.info.backend_pid)
        with pytest.raises(psycopg.OperationalError):
            victim.execute("select 1")


def test_a_member_of_the_password_group_needs_its_password(pg: Server, empty_database: Database) -> None:
    with pg.admin() as connection:
        connection.execute("create role needs_password")
        connection.execute("create role guarded login password 'right' in role needs_password")
    psycopg.connect(empty_database.as_user("guarded", password="right")).close()
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(empty_database.as_user("guarded", password="wrong"))


def test_cut_reply_after_commits_and_tells_nobody(proxy: CuttingProxy, empty_database: Database) -> None:
    with psycopg.connect(proxy.dsn(empty_database.dsn)) as connection:
        connection.execute("create table t as select 1 as n")
        proxy.cut_reply_after(b"COMMIT")
        with pytest.raises(psycopg.OperationalError):
            connection.commit()
    proxy.wait_cut()
    with empty_database.connect() as witness:
        assert witness.execute("select n from t").fetchall() == [(1,)]


def test_cut_reply_after_a_statement_with_parameters(proxy: CuttingProxy, empty_database: Database) -> None:
    with empty_database.connect() as witness:
        witness.execute("create table t (n int)")
        with psycopg.connect(proxy.dsn(empty_database.dsn), autocommit=True) as connection:
            proxy.cut_reply_after(b"insert into t")
            assert connection.execute("select %s::int", [7]).fetchone() == (7,)
            with pytest.raises(psycopg.OperationalError):
                connection.execute("insert into t values (%s)", [8])
        assert witness.execute("select n from t").fetchall() == [(8,)]
        assert proxy.cuts == 1


def test_cut_reply_after_keeps_the_answers_before_it(proxy: CuttingProxy, empty_database: Database) -> None:
    with empty_database.connect() as witness, psycopg.connect(proxy.dsn(empty_database.dsn)) as connection:
        witness.execute("create table t (n int)")
        proxy.cut_reply_after(b"insert into t values (3)")
        # libpq's own pipeline: both requests are sent before the first is answered, and answers come one by one.
        libpq = connection.pgconn
        libpq.enter_pipeline_mode()
        for request in (b"insert into t select 1 from pg_sleep(0.2) returning n", b"insert into t values (3)"):
            libpq.send_query_params(request, None)
            libpq.pipeline_sync()
        first, end_of_first, synced = (_next_result(libpq) for _ in range(3))
        assert first is not None
        assert first.get_value(0, 0) == b"1"
        assert end_of_first is None
        assert synced is not None
        assert synced.status == pq.ExecStatus.PIPELINE_SYNC
        with pytest.raises(psycopg.OperationalError):
            _next_result(libpq)
        assert witness.execute("select n from t order by n").fetchall() == [(1,), (3,)]


def _next_result(libpq: pq.abc.PGconn) -> pq.abc.PGresult | None:
    # get_result() alone would wait with the interpreter's lock held, and the proxy is a thread of this process.
    while libpq.is_busy():
        assert select.select([libpq.socket], [], [], 10)[0], "no answer within 10 s"
        libpq.consume_input()
    return libpq.get_result()


def test_cut_before_never_reaches_the_server(proxy: CuttingProxy, empty_database: Database) -> None:
    with psycopg.connect(proxy.dsn(empty_database.dsn)) as connection:
        connection.execute("create table t as select 1 as n")
        proxy.cut_before(b"COMMIT")
        with pytest.raises(psycopg.OperationalError):
            connection.commit()
    with empty_database.connect() as witness:
        assert witness.execute("select to_regclass('t')").fetchall() == [(None,)]


def test_a_rule_cuts_once_and_cut_cuts_now(proxy: CuttingProxy, empty_database: Database) -> None:
    proxy.cut_before(b"select 1")
    for expected_to_fail in (True, False):
        with psycopg.connect(proxy.dsn(empty_database.dsn), autocommit=True) as connection:
            if expected_to_fail:
                with pytest.raises(psycopg.OperationalError):
                    connection.execute("select 1")
                continue
            connection.execute("select 1")
            assert proxy.cut() == 1
            with pytest.raises(psycopg.OperationalError):
                connection.execute("select 1")
    eventually(lambda: proxy.connections == 0, what="no open connection")


def test_a_refusing_proxy_lets_nobody_in(proxy: CuttingProxy, empty_database: Database) -> None:
    proxy.refuse()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(proxy.dsn(empty_database.dsn))
    proxy.accept()
    psycopg.connect(proxy.dsn(empty_database.dsn)).close()


def test_a_process_is_watched_line_by_line_and_ends_with_its_group(run: Callable[..., Process]) -> None:
    script = "import subprocess, sys; c = subprocess.Popen(['sleep', '60']); print('child', c.pid); c.wait()"
    process = run(sys.executable, "-c", script)
    child = int(process.wait_for_line(r"^child (\d+)$")[1])
    process.close()
    assert process.code == -signal.SIGKILL
    eventually(lambda: not _runs(child), what="the child's end")


def test_a_process_that_ends_early_fails_the_wait_with_what_it_said(run: Callable[..., Process]) -> None:
    process = run(sys.executable, "-c", "import sys; print('no good', file=sys.stderr); sys.exit(3)")
    with pytest.raises(AssertionError, match=r"ended with 3 before(.|\n)*no good"):
        process.wait_for_line("ready")
    assert process.wait() == 3


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
