from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import conninfo_to_dict

from jobqueue.errors import ConfigurationError
from jobqueue.wakeup import relaying
from jobqueue.worker import link, settings
from jobqueue.worker.orders import Orders

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    "load",
    [
        lambda **given: settings.load(app="a:b", class_name="c", **given),
        lambda **given: relaying.load(broker_url="amqp://127.0.0.1", classes="c", **given),
    ],
    ids=["worker", "relay"],
)
def test_what_the_command_line_says_comes_before_the_environment(
    load: Callable[..., settings.WorkerSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBQUEUE_DSN", "host=environment")
    assert load().dsn is not None
    folder = load(dsn_dir=Path("/run/dsn"))
    assert (folder.dsn, folder.dsn_dir) == (None, Path("/run/dsn"))


def test_the_listener_has_a_login_of_its_own_when_one_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "host").write_text("from-a-file")

    def host(*, listen: bool, **given: object) -> object:
        orders = Orders.of(settings.load(app="a:b", class_name="c", dsn="host=main", **given))
        return conninfo_to_dict(link.database(orders, listen=listen).conninfo())["host"]

    assert host(listen=True) == "main"
    assert host(listen=True, listen_dsn="host=direct") == "direct"
    assert host(listen=True, listen_dsn_dir=tmp_path) == "from-a-file"
    assert host(listen=False, listen_dsn_dir=tmp_path) == "main"
    monkeypatch.setenv("JOBQUEUE_LISTEN_DSN", "host=environment")
    assert host(listen=True) == "environment"
    assert host(listen=True, listen_dsn_dir=tmp_path) == "from-a-file", "the command line comes first"
    monkeypatch.setenv("JOBQUEUE_LISTEN_DSN", "")
    monkeypatch.setenv("JOBQUEUE_LISTEN_DSN_DIR", str(tmp_path))
    assert host(listen=True) == "from-a-file", "an empty variable says nothing"


def test_every_wrong_field_is_named_and_no_value_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBQUEUE_CONCURRENCY", "canary")
    with pytest.raises(ConfigurationError) as caught:
        settings.load(app="no-colon", class_name="c", poll_interval=-1)
    text = str(caught.value)
    assert all(name in text for name in ("app", "concurrency", "poll_interval"))
    assert "canary" not in text
    assert "no-colon" not in text
