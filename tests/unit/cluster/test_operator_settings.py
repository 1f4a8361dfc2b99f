"""The operator's settings, as a chart writes them."""

from __future__ import annotations

import pytest

from jobqueue.errors import ConfigurationError
from jobqueue_operator.cluster.settings import load


def test_nothing_said_is_the_whole_cluster_and_no_host_that_nobody_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBQUEUE_OPERATOR_NAMESPACES", "")
    found = load()
    assert (found.places, found.allowed_hosts, found.tick) == ((None,), frozenset(), 5.0)


def test_lists_have_commas_between_and_hosts_are_written_as_a_login_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBQUEUE_OPERATOR_NAMESPACES", " shop, ,other,")
    monkeypatch.setenv("JOBQUEUE_OPERATOR_ALLOW_HOSTS", "LocalHost., 127.0.0.1")
    found = load()
    assert found.places == ("other", "shop")
    assert found.allowed_hosts == {"localhost", "127.0.0.1"}


@pytest.mark.parametrize(
    ("name", "value"), [("TICK", "0.5"), ("TICK", "11"), ("LOG_LEVEL", "loud"), ("HEALTH_PORT", "70000")]
)
def test_a_wrong_value_names_its_field(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"JOBQUEUE_OPERATOR_{name}", value)
    with pytest.raises(ConfigurationError, match=f"(?i){name}"):
        load()
