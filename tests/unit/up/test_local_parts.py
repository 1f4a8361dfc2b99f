import os
from pathlib import Path

import pytest

from jobqueue_operator.manifest import parse_manifests
from jobqueue_operator.platforms.local.backoff import CrashBackoff
from jobqueue_operator.platforms.local.platform import LOGS_MOST, prune_logs
from jobqueue_operator.platforms.local.tail import TAIL_BYTES, tail
from jobqueue_operator.platforms.local.template import Template, template
from jobqueue_operator.resources import JobQueue


def test_deaths_in_a_row_wait_longer_and_a_long_life_forgives() -> None:
    backoff = CrashBackoff()
    assert [backoff.after_death(0.1) for _ in range(8)] == [0, 1, 2, 4, 8, 16, 30, 30]
    assert backoff.looping
    assert backoff.after_death(10.0) == 0
    assert not backoff.looping
    for _ in range(2000):
        assert backoff.after_death(0.0) <= 30


def test_what_an_earlier_process_wrote_is_left_out_and_the_rest_is_bounded(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("old\nnew\n")
    assert (tail(log), tail(log, since=4), tail(log, since=8)) == ("old\nnew\n", "new\n", "")
    assert tail(tmp_path / "nothing") == ""
    log.write_text("x" * 2 * TAIL_BYTES)
    assert len(tail(log, since=4)) == TAIL_BYTES


def test_old_logs_go_first(tmp_path: Path) -> None:
    for i in range(LOGS_MOST + 2):
        file = tmp_path / f"{i}.log"
        file.touch()
        os.utime(file, (i, i))
    prune_logs(tmp_path)
    assert len(list(tmp_path.iterdir())) == LOGS_MOST
    assert not (tmp_path / "1.log").exists()
    assert (tmp_path / "2.log").exists()


def made(class_: str = "", wakeup: str = "", generation: int = 0, pass_on: tuple[str, ...] = ()) -> Template:
    (queue,) = parse_manifests(f"""
apiVersion: jobqueue.dev/v1alpha1
kind: JobQueue
metadata: {{name: shop}}
spec:
  app: shop.jobs:app
  wakeup: {{{wakeup}}}
  classes: [{{name: email, timeout: 30s, {class_}}}]
""")
    assert isinstance(queue, JobQueue)
    return template(
        queue, queue.spec.classes[0], database={"JOBQUEUE_DSN": "secret"}, directory=Path("/app"),
        generation=generation, pass_on=pass_on,
    )  # fmt: skip


def test_a_worker_is_told_by_its_environment_and_no_secret_is_an_argument() -> None:
    found = made("concurrency: 7")
    assert found.command[-5:] == ("worker", "--app", "shop.jobs:app", "--class", "email")
    assert "secret" not in " ".join(found.command)
    assert found.grace == 48.0
    for name, value in {
        "JOBQUEUE_DSN": "secret",
        "JOBQUEUE_CONCURRENCY": "7",
        "JOBQUEUE_DRAIN_TIMEOUT": "35",
        "JOBQUEUE_WAKEUP": "notify",
        "JOBQUEUE_POLL_INTERVAL": "2",
        "JOBQUEUE_QUEUE": "shop",
    }.items():
        assert found.environment[name] == value


def test_the_environment_is_what_is_inherited_declared_and_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL_SECRET", "x")
    monkeypatch.setenv("TOKEN", "from the shell")
    monkeypatch.setenv("PASSED", "on")
    entries = "[{name: MODE, value: fast}, {name: TOKEN, valueFrom: {}}, {name: NONE, valueFrom: {}}, {value: x}, 3]"
    containers = f"podTemplate: {{spec: {{containers: [{{name: worker, env: {entries}}}, {{name: other}}, 4]}}}}"
    found = made(containers, pass_on=("PASSED", "SAID=a=b", "ABSENT")).environment
    assert (found["MODE"], found["TOKEN"], found["PASSED"], found["SAID"]) == ("fast", "from the shell", "on", "a=b")
    assert found.keys().isdisjoint({"SHELL_SECRET", "NONE", "ABSENT"})


@pytest.mark.parametrize("odd", ["podTemplate: {spec: 3}", "podTemplate: {spec: {containers: {}}}"])
def test_a_pod_template_of_another_shape_declares_nothing(odd: str) -> None:
    assert made(odd).environment.keys() == made().environment.keys()


def test_rabbitmq_without_a_broker_here_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    rabbit = "type: RabbitMQ, rabbitmq: {secretRef: {name: broker}}"
    monkeypatch.delenv("JOBQUEUE_BROKER_URL", raising=False)
    assert made(wakeup=rabbit).environment["JOBQUEUE_WAKEUP"] == "polling"
    monkeypatch.setenv("JOBQUEUE_BROKER_URL", "amqp://x")
    found = made(wakeup=rabbit).environment
    assert (found["JOBQUEUE_WAKEUP"], found["JOBQUEUE_BROKER_URL"]) == ("rabbitmq", "amqp://x")


def test_the_revision_changes_with_what_workers_are_made_from_and_with_nothing_else() -> None:
    assert made().revision == made().revision
    assert made("replicas: {min: 5}").revision == made().revision
    assert len({made().revision, made("concurrency: 7").revision, made(generation=1).revision}) == 3
