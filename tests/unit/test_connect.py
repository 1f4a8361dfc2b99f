from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from jobqueue import connect
from jobqueue.errors import ConfigurationError, ConnectionFailed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "JOBQUEUE_DSN",
        "JOBQUEUE_DSN_DIR",
        "PGHOST",
        "PGHOSTADDR",
        "PGPORT",
        "PGDATABASE",
        "PGUSER",
        "PGSERVICE",
        "PGPASSWORD",
        "PGCONNECT_TIMEOUT",
    ):
        monkeypatch.delenv(name, raising=False)


def _files(directory: Path, **values: str) -> Path:
    directory.mkdir(exist_ok=True)
    for name, value in values.items():
        (directory / name).write_text(value)
    return directory


def test_an_explicit_dsn_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBQUEUE_DSN", "host=from-environment")
    assert conninfo_to_dict(connect.resolve("host=given").conninfo())["host"] == "given"
    assert conninfo_to_dict(connect.resolve().conninfo())["host"] == "from-environment"


def test_a_folder_of_files_is_read_as_it_is(tmp_path: Path) -> None:
    odd = "p@ss:w/o%rd 'x' \\"
    folder = _files(tmp_path / "dsn", host="db", port="5433\n", dbname="shop", user="u", password=odd + "\n", other="x")
    got = conninfo_to_dict(connect.resolve(directory=folder).conninfo())
    assert (got["host"], got["port"], got["dbname"], got["user"], got["password"]) == ("db", "5433", "shop", "u", odd)
    assert "other" not in got


def test_the_folder_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBQUEUE_DSN_DIR", str(_files(tmp_path / "dsn", host="db")))
    assert conninfo_to_dict(connect.resolve().conninfo())["host"] == "db"


def test_files_are_read_again_at_every_connect(tmp_path: Path) -> None:
    folder = _files(tmp_path / "dsn", host="db", password="old")
    info = connect.resolve(directory=folder)
    _files(folder, password="new")
    assert conninfo_to_dict(info.conninfo())["password"] == "new"


def test_a_mounted_secret_is_followed_through_its_links(tmp_path: Path) -> None:
    _files(tmp_path / "..2026", host="db", password="one")
    (tmp_path / "..data").symlink_to("..2026")
    for name in ("host", "password"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    assert conninfo_to_dict(connect.resolve(directory=tmp_path).conninfo())["password"] == "one"


def test_an_empty_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds none of the files host, port"):
        connect.resolve(directory=tmp_path)


def test_a_dsn_that_libpq_cannot_read_is_said_without_showing_it() -> None:
    with pytest.raises(ConfigurationError) as caught:
        connect.resolve("canary-secret nonsense")
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("dsn", "says"),
    [
        ("postgresql://u:canary@127.0.0.1:1/db", "host 127.0.0.1, port 1, dbname db, user u): Connection refused"),
        ("host=/nowhere user=u password=canary", "host /nowhere, port 5432, user u"),
    ],
)
def test_an_unreachable_server_gets_one_line_without_the_password(dsn: str, says: str) -> None:
    with pytest.raises(ConnectionFailed) as caught:
        connect.open_sync(connect.resolve(dsn))
    assert says in str(caught.value)
    assert "canary" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nothing_given_names_the_ways_to_give_it() -> None:
    with pytest.raises(ConfigurationError, match=r"give --dsn, JOBQUEUE_DSN, --dsn-dir, JOBQUEUE_DSN_DIR, or libpq's"):
        connect.resolve()


def test_empty_variables_give_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBQUEUE_DSN", "")
    monkeypatch.setenv("JOBQUEUE_DSN_DIR", str(_files(tmp_path / "dsn", host="db")))
    assert conninfo_to_dict(connect.resolve().conninfo())["host"] == "db"


def test_libpqs_own_variables_are_enough_and_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "HOST": "127.0.0.1",
        "PORT": "1",
        "DATABASE": "shop",
        "USER": "u",
        "PASSWORD": "canary",
    }.items():
        monkeypatch.setenv(f"PG{name}", value)
    with pytest.raises(ConnectionFailed, match=r"host 127\.0\.0\.1, port 1, dbname shop, user u") as caught:
        connect.open_sync(connect.resolve())
    assert "canary" not in str(caught.value)


def test_what_a_folder_cannot_say_is_said(tmp_path: Path) -> None:
    folder = _files(tmp_path / "dsn", host="db")
    for content, says in ((b"\xff", "is not UTF-8"), (b"a\0b", "contains a NUL")):
        (folder / "password").write_bytes(content)
        with pytest.raises(ConfigurationError, match=f"password {says}"):
            connect.resolve(directory=folder)


def test_a_dead_peer_is_noticed_and_what_the_dsn_says_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    got = conninfo_to_dict(connect.resolve("host=db connect_timeout=3 keepalives_idle=60").conninfo())
    assert (got["connect_timeout"], got["keepalives_idle"], got["tcp_user_timeout"]) == ("3", "60", "30000")
    assert conninfo_to_dict(connect.resolve("host=db").conninfo())["connect_timeout"] == "10"
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "2")
    assert "connect_timeout" not in conninfo_to_dict(connect.resolve("host=db").conninfo())


@pytest.mark.parametrize(
    ("said", "remedy", "retry_helps"),
    [
        ('FATAL:  password authentication failed for user "u"', "check user and password", False),
        ("fe_sendauth: no password supplied", "check user and password", False),
        ('FATAL:  database "authentication" does not exist', "check dbname", False),
        ('FATAL:  role "u" does not exist', "check the user", False),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "u"', "pg_hba.conf", False),
        ("FATAL:  the database system is starting up", "is PostgreSQL running there", True),
        ("FATAL:  sorry, too many clients already", "is PostgreSQL running there", True),
        ("failed to resolve host 'no.password.invalid ': [Errno -2] unknown", "is PostgreSQL running there", True),
        ("connection timeout expired", "is PostgreSQL running there", True),
    ],
)
async def test_whether_waiting_helps_is_told(
    said: str,
    remedy: str,
    retry_helps: bool,  # noqa: FBT001 - a parameter of the test
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise psycopg.OperationalError(f'connection to server at "127.0.0.1", port 5432 failed: {said}')

    async def refuse_later(*_: object, **__: object) -> None:
        refuse()

    monkeypatch.setattr("psycopg.Connection.connect", refuse)
    monkeypatch.setattr("psycopg.AsyncConnection.connect", refuse_later)
    info = connect.resolve("host=127.0.0.1")
    with pytest.raises(ConnectionFailed, match=remedy) as caught:
        connect.open_sync(info)
    with pytest.raises(ConnectionFailed, match=remedy) as later:
        await connect.open_async(info)
    assert caught.value.retry_helps is later.value.retry_helps is retry_helps


@pytest.mark.parametrize("dsn", ["host=db connect_timeout=soon", "host=" + "a" * 300])
def test_a_value_that_no_server_sees_is_not_tried_again(dsn: str) -> None:
    with pytest.raises(ConnectionFailed, match="check the DSN") as caught:
        connect.open_sync(connect.resolve(dsn))
    assert not caught.value.retry_helps


@pytest.mark.parametrize("password", ["pa/canary", "canary/x", "1/canary"])
def test_a_slash_in_a_urls_password_is_said_without_showing_it(password: str) -> None:
    with pytest.raises(ConfigurationError, match="%2F") as caught:
        connect.resolve(f"postgresql://u:{password}@127.0.0.1/db")
    assert "canary" not in str(caught.value)
