from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import conninfo_to_dict

from jobqueue import connect
from jobqueue.errors import ConfigurationError, ConnectionFailed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JOBQUEUE_DSN", "JOBQUEUE_DSN_DIR", "PGHOST", "PGDATABASE", "PGUSER", "PGPASSWORD"):
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
        ("host=/nowhere user=u password=canary", "host /nowhere, user u"),
    ],
)
def test_an_unreachable_server_gets_one_line_without_the_password(dsn: str, says: str) -> None:
    with pytest.raises(ConnectionFailed) as caught:
        connect.open_sync(connect.resolve(dsn))
    assert says in str(caught.value)
    assert "canary" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nothing_given_names_the_ways_to_give_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGHOST", "/nowhere")
    with pytest.raises(ConnectionFailed, match=r"give --dsn, JOBQUEUE_DSN, --dsn-dir or libpq's"):
        connect.open_sync(connect.resolve())
