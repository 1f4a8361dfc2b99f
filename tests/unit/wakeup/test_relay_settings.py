"""The relay's settings: from the caller, then the environment, then the defaults; wrong ones are named, not shown."""

import pytest

from jobqueue.errors import ConfigurationError
from jobqueue.wakeup import relaying

GOOD = {"broker_url": "amqp://guest:hunter2@broker/", "classes": "email, sms"}


def test_classes_are_split_and_the_rest_has_defaults() -> None:
    settings = relaying.load(**GOOD)
    assert settings.classes == ("email", "sms")
    assert (settings.schema_name, settings.poll_interval, settings.metrics_port) == ("jobqueue", 1, None)


def test_the_environment_fills_what_was_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBQUEUE_BROKER_URL", "amqp://other/")
    monkeypatch.setenv("JOBQUEUE_CLASSES", "report,")
    monkeypatch.setenv("JOBQUEUE_SCHEMA", "work")
    settings = relaying.load(classes=None, broker_url="amqp://given/")
    assert settings.broker_url.get_secret_value() == "amqp://given/"
    assert (settings.classes, settings.schema_name) == (("report",), "work")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"classes": ""}, "classes"),
        ({"broker_url": None}, "broker_url"),
        ({"poll_interval": 0}, "poll_interval"),
        ({"poll_interval": "nan"}, "poll_interval"),
        ({"metrics_port": 70_000}, "metrics_port"),
    ],
)
def test_a_wrong_setting_is_named_and_no_value_shown(given: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigurationError, match=field) as refused:
        relaying.load(**GOOD | given)
    assert "hunter2" not in str(refused.value)


def test_a_bad_broker_url_is_refused_before_anything_starts() -> None:
    pytest.importorskip("aio_pika")
    with pytest.raises(ConfigurationError, match="broker URL"):
        relaying.build(relaying.load(**GOOD | {"broker_url": "guest:hunter2@broker", "dsn": "host=127.0.0.1"}))


def test_no_secret_is_in_the_settings_text() -> None:
    assert "hunter2" not in repr(relaying.load(**GOOD))
