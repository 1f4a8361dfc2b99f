from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobqueue.errors import ConfigurationError
from jobqueue.wakeup import relaying
from jobqueue.worker import settings

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


def test_every_wrong_field_is_named_and_no_value_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBQUEUE_CONCURRENCY", "canary")
    with pytest.raises(ConfigurationError) as caught:
        settings.load(app="no-colon", class_name="c", poll_interval=-1)
    text = str(caught.value)
    assert all(name in text for name in ("app", "concurrency", "poll_interval"))
    assert "canary" not in text
    assert "no-colon" not in text
