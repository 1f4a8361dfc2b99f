"""What each command prints and how it ends, against a real database."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from jobqueue import migrate, queue
from jobqueue.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from services.databases import Database

VERBS = "migrate enqueue worker drain relay stats list show redrive cancel redact sweep maintain up explain".split()  # noqa: SIM905


# What list and show say of a job, in JSON.
JOB = (
    "id class kind version status attempts max_attempts priority run_after leased_until key tenant concurrency_key "
    "actor_id correlation_id last_error reason created_at started_at finished_at"
)


@dataclass(frozen=True)
class Ended:
    """How a command ended; times and the migrations' names replaced."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


class Terminal(io.StringIO):
    """Somebody who types."""

    def isatty(self) -> bool:
        return True


class Cli:
    """`jobqueue` in this process, with JOBQUEUE_DSN set."""

    def __init__(self, dsn: str, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._patch = patch
        for name in [n for n in os.environ if n.startswith(("JOBQUEUE_", "PG"))]:
            patch.delenv(name)
        patch.setenv("JOBQUEUE_DSN", dsn)
        patch.setenv("COLUMNS", "100")
        # A worker adopts the orphans of its process; this process is pytest's.
        patch.setattr("jobqueue.worker.supervisor.become_subreaper", lambda: None)

    def __call__(self, *arguments: str, stdin: str | Terminal = "", **environment: str) -> Ended:
        with self._patch.context() as patch:
            patch.setattr(sys, "stdin", io.StringIO(stdin) if isinstance(stdin, str) else stdin)
            for name, value in environment.items():
                patch.setenv(name, value)
            code = main(arguments)
        out, err = self._capsys.readouterr()
        assert "Traceback" not in err
        return Ended(code, _normal(out), _normal(err))


def _normal(text: str) -> str:
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "TIME", text)
    text = re.sub(r"\b\d+\.\ds\b", "SPAN", text)
    return re.sub(r"applied \d{4}_\w+\n", "", text)


@pytest.fixture
def cli(database: Database, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    return Cli(database.dsn, capsys, monkeypatch)


def test_migrate_creates_then_changes_nothing(
    empty_database: Database, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = Cli(empty_database.dsn, capsys, monkeypatch)
    assert cli("stats") == Ended(
        2, "", "error: there is no queue in schema 'jobqueue' of this database; run: jobqueue migrate\n"
    )
    first = cli("migrate", "--class", "email")
    assert (first.code, first.err) == (0, "")
    assert re.fullmatch(r"schema jobqueue is at version \d+\nclass email is registered\n", first.out)
    assert cli("migrate").out == first.out.splitlines()[0] + " (it was before)\n"
    assert cli("migrate", "--json").json()["applied"] == []


def test_migrate_names_the_roles_that_a_queue_was_made_with(
    empty_database: Database, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = Cli(empty_database.dsn, capsys, monkeypatch)
    prefix = f"shop_{empty_database.name[-12:]}".lower().replace("-", "_")
    assert cli("migrate", "--role-prefix", prefix).code == 0
    with empty_database.connect() as conn:
        before = conn.execute("SELECT count(*) FROM pg_roles").fetchone()
        assert cli("migrate") == Ended(
            2,
            "",
            f"error: schema 'jobqueue' belongs to role '{prefix}_owner', not to 'jobqueue_owner'; "
            f"give --role-prefix {prefix}\n",
        )
        assert conn.execute("SELECT count(*) FROM pg_roles").fetchone() == before


def test_a_class_that_does_not_exist_is_named_with_those_that_do(cli: Cli) -> None:
    wrong = Ended(2, "", "error: class: there is no class 'nope'\nhint: the classes are: default\n")
    assert cli("list", "--class", "nope") == wrong
    assert cli("redrive", "--class", "nope", "--yes") == wrong
    assert cli("list", "--class", "default") == Ended(0, "no jobs\n", "")


def test_migrate_registers_the_classes_of_a_manifest(cli: Cli, tmp_path: Path) -> None:
    manifest = tmp_path / "jobqueue.yaml"
    manifest.write_text(
        "apiVersion: jobqueue.dev/v1alpha1\nkind: JobQueue\nmetadata: {name: shop}\nspec:\n  app: shop:app\n"
        "  classes:\n  - name: email\n    timeout: 20s\n    target: {oldestMessageAge: 30s}\n"
    )
    ended = cli("migrate", "--manifest", str(manifest))
    assert ended.code == 0, ended.err
    assert ended.out.endswith("class email is registered\n")
    manifest.write_text(manifest.read_text().replace("20s", "20 parsecs"))
    wrong = cli("migrate", "--manifest", str(manifest))
    assert wrong.code == 2
    assert "spec.classes[0].timeout" in wrong.err


def test_the_life_of_a_job(cli: Cli, database: Database) -> None:
    assert cli("enqueue", "default", "invoice.email", '{"invoice_id": 7}', "--key", "i-7").out == "job 1\n"
    assert cli("enqueue", "default", "invoice.email", '{"invoice_id": 7}', "--key", "i-7").out == "job 1 (it existed)\n"
    assert cli("list").out == (
        "ID  CLASS    KIND           STATUS   ATTEMPTS  CREATED               LAST ERROR\n"
        "1   default  invoice.email  pending  0/10      TIME  -\n"
    )
    assert cli("stats").out == (
        "CLASS    READY  OLDEST  TARGET  IN FLIGHT  SCHEDULED  BLOCKED  DEAD  WORKERS\n"
        "default  1      SPAN    30s     0          0          0        0     0\n"
    )
    with database.connect() as conn:
        worker = queue.register_worker(conn, "w", "default", [("invoice.email", 1)], slots=1).worker
        job = queue.claim(conn, "default", worker, 1, max_jobs=1)[0]
        queue.fail(conn, job.id, job.token, "ValueError: boom", outcome="dead", reason="no such invoice")
    assert cli("show", "1").out == (
        "id               1\nclass            default\nkind             invoice.email\nversion          1\n"
        "status           dead\nattempts         1\nmax_attempts     10\npriority         0\nkey              i-7\n"
        "last_error       ValueError: boom\nreason           no such invoice\ncreated_at       TIME\n"
        "started_at       TIME\nfinished_at      TIME\n\n"
        "ATTEMPT  OUTCOME  WORKER  STARTED               TOOK  ERROR\n"
        "1        dead     w       TIME  SPAN  ValueError: boom\n"
    )
    assert cli("show", "1", "--json", "--show-payload").json()["payload"] == {"invoice_id": 7}
    assert "payload" not in cli("show", "1", "--json").json()
    assert cli("redrive", "1").out == "job 1: redriven\n"
    assert cli("redrive", "1") == Ended(1, "job 1: skipped: pending\n", "")
    assert cli("redact", "1") == Ended(
        1, "", "error: id: job 1 has not ended\nhint: cancel it first, or wait until it has ended\n"
    )
    assert cli("cancel", "1").out == "job 1: cancelled\n"
    assert cli("cancel", "1").out == "job 1: it has ended already\n"
    assert cli("redact", "1").out == "redacted 1 jobs\n"
    assert cli("redact", "1", "404") == Ended(1, "redacted 1 jobs; 1 of 2 do not exist\n", "")
    assert 'payload          {"redacted": true}\n' in cli("show", "1", "--show-payload").out
    assert cli("redrive", "--status", "cancelled", "--all", "--dry-run").out == "would redrive 1 jobs\n"
    # It was redacted: nothing is left to run.
    assert cli("redrive", "--status", "cancelled", "--all", "--yes").out == "redrove 0 jobs\n"


def test_many_jobs_from_a_file_are_all_or_none(cli: Cli) -> None:
    good = '{"class": "default", "kind": "k", "payload": {"n": 1}, "tenant": "t"}\n'
    assert cli("enqueue", "--many", "-", stdin=good * 3).out == "enqueued 3 jobs\n"
    bad = cli("enqueue", "--many", "-", stdin=good + good.replace('"k"', '""'))
    assert bad == Ended(2, "", "error: line 2: kind: must not be empty; name the handler that runs the job\n")
    assert len(cli("list", "--tenant", "t", "--json").json()) == 3


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 1: not JSON"),
        ("[1]", "line 1: not an object"),
        ('{"class": "default", "kind": "k"}', "line 1: payload: missing"),
        ('{"class": "default", "kind": "k", "payload": {}, "colour": 1}', "line 1: 'colour' is no field of a job"),
        ('{"class": "default", "kind": 3, "payload": {}}', "line 1: kind: must be text, not a whole number"),
        (
            '{"class": "default", "kind": "k", "payload": {}, "version": 3e9}',
            "version: must be a whole number, not a number",
        ),
        (
            '{"class": "default", "kind": "k", "payload": {}, "priority": true}',
            "priority: must be a whole number, not true",
        ),
        ('{"class": "default", "kind": "k", "payload": {}, "version": 3000000000}', "line 1: version: out of range"),
        (
            '{"class": "default", "kind": "k", "payload": {}, "run_after": "+99999999d"}',
            "line 1: run_after: '+99999999d' is too",
        ),
        ('{"class": "default", "kind": "k", "payload": NaN}', "NaN is not JSON"),
        ('{"class": "default", "kind": "k", "payload": {"a": "\\u0000"}}', "line 1: payload.a: contains a NUL"),
        ('{"class": "default", "kind": "k", "payload": {"a": ' + "9" * 5000 + "}}", "line 1: "),
        ('{"class": "default", "kind": "k", "payload": ' + "[" * 100 + "]" * 100 + "}", "more than 64 levels deep"),
        ('{"class": "nope", "kind": "k", "payload": {}}', "line 1: class: there is no class 'nope'"),
        (
            '{"class": "default", "kind": "k", "payload": {}, "run_after": "noon"}',
            "line 1: run_after: 'noon' is no time",
        ),
    ],
)
def test_a_bad_line_is_named(cli: Cli, line: str, says: str) -> None:
    ended = cli("enqueue", "--many", "-", stdin=line + "\n")
    assert ended.code == 2
    assert says in ended.err
    assert len(ended.err) < 500


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["enqueue", "nope", "k", "{}"], 2, "there is no class 'nope'\nhint: register it: jobqueue migrate --class"),
        (["enqueue", "default", "k", "{"], 2, "error: payload: not JSON"),
        (["enqueue", "default", "k"], 2, "CLASS, KIND and PAYLOAD are needed"),
        (["enqueue", "default", "k", "{}", "--run-after", "2030-01-01T00:00"], 2, "has no time zone"),
        (["enqueue", "default", "k", "{}", "--version", "3000000000"], 2, "Invalid value for '--version'"),
        (["enqueue", "default", "k", "{}", "--run-after", "+99999999d"], 2, "is too far away"),
        (["enqueue", "--many", "/nonexistent"], 2, "error: /nonexistent: No such file or directory"),
        (["migrate", "--check", "--schema", "other"], 2, "run: jobqueue migrate --schema other"),
        (["migrate", "--check", "--class", "email"], 2, "changes nothing, so it takes no --class"),
        (["list", "--class", "\udcff"], 2, "an argument is not valid UTF-8"),
        (["show", "99999999999999999999"], 2, "is no number of a job"),
        (["show", "99"], 1, "there is no job 99"),
        (["cancel", "99"], 1, "there is no job 99"),
        (["redrive"], 2, "give either IDs or filters"),
        (["redrive", "--all", "--spread", "soon"], 2, "--spread: 'soon' is no duration"),
        (["redrive", "--all", "--status", "done"], 2, "done jobs are redriven only by force"),
        (["list", "--status", "lost"], 2, "--status"),
        (["worker"], 2, "app: Field required"),
        (["stats", "--dsn", "host=/nowhere password=canary"], 1, "error: database (host /nowhere, port 5432, "),
        (["stats", "--schema", "other"], 2, "run: jobqueue migrate --schema other"),
        (["stats", "--dsn-dir", "/nonexistent"], 2, "holds none of the files"),
        (["drain", "--socket", "/nonexistent"], 1, "no worker listens"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(cli: Cli, arguments: list[str], code: int, says: str) -> None:
    ended = cli(*arguments)
    assert ended.code == code, ended.err
    assert says in ended.err
    assert ended.out == ""
    assert "canary" not in ended.err


def test_filters_ask_before_they_redrive(cli: Cli, database: Database) -> None:
    assert cli("redrive", "--all").out == "redrove 0 jobs\n"  # nothing to do needs no question
    with database.connect() as conn:
        ids = [queue.enqueue(conn, "default", "k", {"n": n}).id for n in range(3)]
        for id_ in ids:
            queue.cancel(conn, id_)
    command = ("redrive", "--status", "cancelled", "--class", "default", "--kind", "k")
    unasked = cli(*command)
    assert (unasked.code, unasked.out) == (2, "")
    assert unasked.err.endswith("3 cancelled jobs, and nobody to ask\nhint: add --yes, or look with --dry-run\n")
    declined = cli(*command, stdin=Terminal("n\n"))
    assert (declined.code, declined.out) == (1, "")
    assert declined.err == "Redrive 3 cancelled jobs? [y/N]: error: stopped\n"
    assert len(cli("list", "--status", "cancelled", "--json").json()) == 3
    assert cli(*command, stdin=Terminal("y\n")).out == "redrove 3 jobs\n"
    assert len(cli("list", "--status", "pending", "--json").json()) == 3


def test_answers_in_json_keep_their_shape(cli: Cli, database: Database) -> None:
    assert cli("enqueue", "default", "k", "{}", "--key", "a", "--json").json() == {"id": 1, "created": True}
    lines = '{"class": "default", "kind": "k", "payload": {}, "key": "%s"}\n'
    many = cli("enqueue", "--many", "-", "--json", stdin=lines % "a" + lines % "b")
    assert many.json() == {"created": 1, "existing": 1}
    stats = cli("stats", "--json").json()
    assert set(stats) == {"now", "classes", "downstreams", "workers", "versions", "database"}
    assert {"class", "ready", "oldest_age", "in_flight", "scheduled", "dead", "blocked"} <= set(stats["classes"][0])
    listed = cli("list", "--key", "a", "--json").json()
    assert [(job["id"], job["status"], job["started_at"]) for job in listed] == [(1, "pending", None)]
    assert set(listed[0]) == set(JOB.split())
    with database.connect() as conn:
        worker = queue.register_worker(conn, "w", "default", [("k", 1)], slots=1).worker
        job = queue.claim(conn, "default", worker, 1, max_jobs=1)[0]
        queue.fail(conn, job.id, job.token, "boom", outcome="dead")
    history = cli("show", str(job.id), "--json").json()["history"]
    assert [set(attempt) for attempt in history] == [
        {"number", "budget", "outcome", "reason", "error", "worker", "started_at", "finished_at"}
    ]
    assert cli("redrive", "--all", "--dry-run", "--json").json() == {"jobs": 1, "dry_run": True}
    assert cli("redrive", "--all", "--yes", "--json").json() == {"jobs": 1, "dry_run": False}
    assert cli("redrive", "1", "--json").json() == [{"id": 1, "result": "skipped: pending"}]
    assert cli("cancel", "1", "--json").json() == [{"id": 1, "result": "cancelled"}]
    assert cli("redact", "1", "--json").json() == {"jobs": 1}
    assert cli("sweep", "--json").json() == {"requeued": 0, "dead": 0, "cancelled": 0, "unparked": 0}
    assert all(set(done) == {"action", "detail", "rows"} for done in cli("maintain", "--json").json())
    migrated = cli("migrate", "--check", "--json").json()
    assert migrated == {"schema": "jobqueue", "version": migrate.latest(), "applied": [], "classes": []}
    for fails in (["drain", "--socket", "/nonexistent"], ["show", "99"], ["list", "--limit", "x"], ["nonsense"]):
        assert set(json.loads(cli(*fails, "--json").err)) == {"error", "hint"}


def test_no_secret_is_ever_printed(cli: Cli, database: Database, tmp_path: Path) -> None:
    secret = "canary-p@ss:w/o%rd"
    for name, value in {"host": "127.0.0.1", "port": "1", "dbname": "shop", "user": "u", "password": secret}.items():
        (tmp_path / name).write_text(value)
    payload = json.dumps({"card": secret})
    line = json.dumps({"class": "default", "kind": "k", "payload": {"card": secret}})
    tried = [
        cli("stats", "--dsn-dir", str(tmp_path)),
        cli("stats", "--dsn", "postgresql://u:canary-p%40ss@127.0.0.1:1/shop"),
        cli("stats", "--dsn", f"postgresql://u:{secret}@127.0.0.1:1/shop"),
        cli("stats", JOBQUEUE_DSN="", PGHOST="127.0.0.1", PGPORT="1", PGPASSWORD=secret),
        cli("worker", "--app", "a:b", "--class", "default", "--dsn", f"canary={secret}"),
        cli("enqueue", "default", "k", payload[:-1]),
        cli("enqueue", "nope", "k", payload),
        cli("enqueue", "default", "k", payload, "--key", "a"),
        cli("enqueue", "default", "k", '{"card": "canary-2"}', "--key", "a"),
        cli("enqueue", "--many", "-", stdin=line[:-1]),
        cli("enqueue", "--many", "-", stdin=line.replace('"kind"', '"kinds"')),
        cli("list", "--json"),
        cli("list"),
        cli("show", "1"),
        cli("show", "1", "--json"),
        cli("stats", "--json"),
    ]
    assert [ended.code for ended in tried] == [1, 1, 2, 1, 2, 2, 2, 0, 1, 2, 2, 0, 0, 0, 0, 0]
    assert not [ended for ended in tried if "canary" in ended.out + ended.err]
    assert "canary" in cli("show", "1", "--show-payload").out
    with database.connect() as conn:
        assert conn.execute("SELECT count(*) FROM jobqueue.jobs").fetchone() == (1,)


def test_a_fault_of_our_own_is_one_line_too(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("canary")

    monkeypatch.setattr("jobqueue.queue.snapshot", fail)
    ended = cli("stats")
    assert (ended.code, ended.err.splitlines()[0]) == (1, "error: this is a mistake in jobqueue: KeyError")
    assert "canary" not in ended.err
    with pytest.raises(KeyError):
        cli("stats", JOBQUEUE_TRACEBACK="1")


def test_help_needs_neither_the_driver_nor_the_worker() -> None:
    check = (
        "import sys; from jobqueue.cli import main; main(['--help']);"
        " sys.exit(', '.join({'psycopg', 'pydantic', 'structlog', 'prometheus_client'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stderr.strip() == ""
    assert "Usage: jobqueue" in ended.stdout


def test_ctrl_c_ends_it_quietly(database: Database) -> None:
    environment = os.environ | {"JOBQUEUE_DSN": database.dsn}
    code = (
        "import os, signal, sys, jobqueue.cli\n"
        "class Asked:\n"
        "    def __iter__(self): os.kill(os.getpid(), signal.SIGINT); return iter(())\n"
        "sys.stdin = Asked()\n"
        "sys.exit(jobqueue.cli.main(['enqueue', '--many', '-']))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_with_json_an_error_is_json_too(cli: Cli) -> None:
    ended = cli("enqueue", "nope", "k", "{}", "--json")
    assert json.loads(ended.err) == {
        "error": "class: there is no class 'nope'",
        "hint": "register it: jobqueue migrate --class NAME, or --manifest FILE",
    }


def test_a_newer_schema_is_said(cli: Cli, database: Database) -> None:
    with database.connect() as conn:
        conn.execute("INSERT INTO jobqueue.migration (version, name, oldest_release) VALUES (9999, 'future', 9999)")
    ended = cli("stats")
    assert ended.code == 2
    assert "upgrade the package" in ended.err


def test_a_login_without_a_role_is_told_which_to_grant(cli: Cli, database: Database) -> None:
    with database.connect() as conn:
        conn.execute("DROP ROLE IF EXISTS cli_stranger")
        conn.execute("CREATE ROLE cli_stranger LOGIN")
    ended = cli("stats", JOBQUEUE_DSN=database.as_user("cli_stranger"))
    with database.connect() as conn:
        conn.execute("DROP ROLE cli_stranger")
    assert ended.code == 2
    assert "grant it one of the queue's roles" in ended.err


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_explains_itself(cli: Cli, verb: str) -> None:
    ended = cli(verb, "--help")
    assert ended.code == 0, ended.err
    assert "Usage: jobqueue " + verb in ended.out
    assert verb in cli("--help").out


def test_every_setting_of_the_worker_is_an_option_and_a_variable(cli: Cli) -> None:
    from jobqueue.worker.settings import WorkerSettings  # noqa: PLC0415

    text = cli("worker", "--help", COLUMNS="300").out
    for name in WorkerSettings.model_fields:
        short = {"class_name": "class", "schema_name": "schema"}.get(name, name)
        assert "--" + short.replace("_", "-") in text
        assert f"[JOBQUEUE_{short.upper()}]" in text


def test_sweep_and_maintain_say_what_they_did(cli: Cli) -> None:
    assert cli("sweep").out == "0 requeued, 0 dead, 0 cancelled, 0 unparked\n"
    assert cli("maintain").code == 0


def test_the_module_is_the_command_and_a_reader_that_leaves_is_no_error(cli: Cli, database: Database) -> None:
    assert cli("enqueue", "default", "k", "{}").code == 0
    command = f"{sys.executable} -m jobqueue list --limit 1000 | true; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(
        ["bash", "-c", command],
        env=os.environ | {"JOBQUEUE_DSN": database.dsn},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ended.stdout.strip() in {"0", "1", "141"}  # all written, or cut short
    assert ended.stderr == ""
