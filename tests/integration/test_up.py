"""`jobqueue up` as a user runs it: a manifest, an app, real workers, real signals."""

from __future__ import annotations

import json
import os
import pty
import signal
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psutil
import psycopg
import pytest

from jobqueue import queue
from services.waiting import eventually
from services.workers import alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from services.databases import Database
    from services.postgres import Server
    from services.processes import Process

APP = """
import asyncio, os, pathlib
from jobqueue import App, Job
app = App()
here = pathlib.Path(__file__).parent

@app.handler("note", version=1, timeout=20)
async def note(job: Job[dict]) -> None:
    with (here / "notes").open("a") as file:
        file.write(f"{job.payload['n']} {job.attempt}\\n")
    until = job.payload.get("until")
    while until and not (here / until).exists():
        await asyncio.sleep(0.02)
    await asyncio.sleep(job.payload.get("seconds", 0))
"""

MANIFEST = """
apiVersion: jobqueue.dev/v1alpha1
kind: JobQueue
metadata: {name: shop}
spec:
  app: jobs:app
  classes:
  - name: email
    concurrency: 4
    timeout: 20s
    replicas: {min: 2}
    lease: {duration: 60s}
    retry: {backoff: {initial: 100ms, max: 1s}}
    capacity: {ref: {name: db}}
---
apiVersion: jobqueue.dev/v1alpha1
kind: DownstreamCapacity
metadata: {name: db}
spec: {units: 100}
"""


class Shop:
    """A folder with a manifest and an app, and the `jobqueue up` that runs them."""

    def __init__(self, folder: Path, database: Database, run: Callable[..., Process]) -> None:
        self.folder, self.database, self._run = folder, database, run
        (folder / "jobs.py").write_text(APP)
        self.manifest = folder / "jobqueue.yaml"
        self.manifest.write_text(MANIFEST)

    def up(self, *options: str, dsn: str | None = "") -> Process:
        return self._run(*self.command(*options, dsn=dsn), cwd=self.folder)

    def command(self, *options: str, dsn: str | None = "") -> list[str]:
        place = [] if dsn is None else ["--dsn", dsn or self.database.direct]
        return [sys.executable, "-m", "jobqueue", "up", "-f", str(self.manifest), "--tick", "0.2", *place, *options]

    def enqueue(self, *payloads: dict[str, Any]) -> list[int]:
        with self.database.connect() as connection:
            queue.set_class(connection, None, "email", {})
            return [e.id for e in queue.enqueue_many(connection, [queue.NewJob("email", "note", p) for p in payloads])]

    def jobs(self) -> list[tuple[Any, ...]]:
        with self.database.connect() as connection:
            return connection.execute("SELECT status, attempts FROM jobqueue.jobs ORDER BY id").fetchall()

    def notes(self) -> list[str]:
        file = self.folder / "notes"
        return file.read_text().splitlines() if file.exists() else []

    def workers(self) -> dict[str, int]:
        """Return name and process id of every worker's supervisor."""
        records = (self.folder / ".jobqueue" / "workers").glob("*.json")
        return {r["name"]: r["pid"] for r in (json.loads(file.read_text()) for file in records)}

    def touch(self, name: str) -> None:
        (self.folder / name).touch()


@pytest.fixture
def shop(tmp_path: Path, database: Database, run: Callable[..., Process]) -> Shop:
    return Shop(tmp_path, database, run)


def ticks(process: Process) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in process.out if line.startswith("{")]
    return [line["classes"][0] for line in lines if line["event"] == "tick"]


def ready(process: Process, count: int = 2) -> None:
    """Wait until so many workers are ready; fail at once when `up` has ended."""
    eventually(
        lambda: process.code is not None or any(t["workers_ready"] == count for t in ticks(process)[-1:]),
        within=30,
        what="ready workers",
    )
    assert process.code is None, process.text


def started(process: Process, shop: Shop) -> None:
    """Wait until a handler has begun; fail at once when `up` has ended."""
    eventually(lambda: shop.notes() or process.code is not None, within=30, what="a handler at work")
    assert process.code is None, process.text


def none_left(shop: Shop) -> bool:
    """Whether no process works in the shop's folder any more."""
    return not [p for p in psutil.process_iter() if str(shop.folder) in (_cwd(p) or "")]


def _cwd(process: psutil.Process) -> str | None:
    try:
        return str(process.cwd())
    except psutil.Error:
        return None


def test_works_off_what_is_there_and_ends(shop: Shop) -> None:
    shop.enqueue(*({"n": n} for n in range(50)))
    process = shop.up("--until-empty")
    assert process.wait(within=60) == 0, process.text
    assert shop.jobs() == [("done", 1)] * 50
    assert sorted(int(note.split()[0]) for note in shop.notes()) == list(range(50))
    assert ticks(process)[-1]["done"] == 50
    assert shop.workers() == {}
    assert none_left(shop)


def test_the_manifest_s_limits_are_in_the_queue(shop: Shop) -> None:
    process = shop.up("--for", "1")
    assert process.wait(within=60) == 0, process.text
    with shop.database.connect() as connection:
        seen = queue.snapshot(connection)
    (email,) = (c for c in seen["classes"] if c["class"] == "email")
    assert (email["downstream"], email["timeout"], email["concurrency"]) == ("db", 20, 4)
    assert seen["downstreams"] == [{"downstream": "db", "limit": 100, "in_use": 0}]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_running_jobs_finish(shop: Shop, number: signal.Signals) -> None:
    shop.enqueue({"n": 1, "until": "go"})
    process = shop.up()
    started(process, shop)
    process.signal(number)
    process.wait_for_line("draining; Ctrl-C")
    shop.touch("go")
    assert process.wait(within=30) == 0, process.text
    assert shop.jobs() == [("done", 1)]
    assert none_left(shop)


def test_a_second_signal_gives_running_jobs_back_with_their_attempt(shop: Shop) -> None:
    shop.enqueue({"n": 1, "until": "never"})
    process = shop.up()
    started(process, shop)
    process.signal(signal.SIGINT)
    process.wait_for_line("draining; Ctrl-C")
    process.signal(signal.SIGINT)
    assert process.wait(within=15) == 0, process.text
    assert shop.jobs() == [("pending", 0)]
    assert none_left(shop)


def test_until_empty_waits_for_a_job_that_is_due_within_a_minute_and_not_for_a_later_one(shop: Shop) -> None:
    with shop.database.connect() as connection:
        queue.set_class(connection, None, "email", {})
        for number, seconds in ((1, 4), (2, 3600)):
            later = datetime.now(UTC) + timedelta(seconds=seconds)
            queue.enqueue(connection, "email", "note", {"n": number}, run_after=later)
    process = shop.up("--until-empty")
    assert process.wait(within=40) == 0, process.text
    assert shop.notes() == ["1 1"]
    assert shop.jobs() == [("done", 1), ("pending", 0)]
    assert "class email: 1 jobs are scheduled for later" in process.text


def test_a_killed_worker_is_replaced_and_its_job_runs_again_long_before_its_lease_ends(shop: Shop) -> None:
    shop.manifest.write_text(MANIFEST.replace("min: 2", "min: 1"))
    shop.enqueue({"n": 1, "until": "go"})
    process = shop.up("--until-empty")
    started(process, shop)
    ((name, pid),) = shop.workers().items()
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: shop.notes() == ["1 1", "1 2"], within=30, what="the second attempt")
    shop.touch("go")
    assert process.wait(within=30) == 0, process.text
    assert shop.jobs() == [("done", 2)]
    assert f"{name} died and is started again: killed by signal 9" in process.text
    assert f"{name} drained" in process.text, "what happens after a recovery is said again"


def test_hangup_replaces_every_worker_one_out_one_in(shop: Shop) -> None:
    process = shop.up()
    ready(process)
    before = shop.workers()
    shop.enqueue(*({"n": n, "seconds": 0.05} for n in range(200)))
    process.signal(signal.SIGHUP)
    eventually(lambda: len(shop.workers()) == 2 and not shop.workers().keys() & before.keys(), within=60)
    eventually(lambda: {status for status, _ in shop.jobs()} == {"done"}, within=60)
    ready(process)
    process.signal(signal.SIGINT)
    assert process.wait(within=30) == 0, process.text
    assert shop.jobs() == [("done", 1)] * 200, "nobody was interrupted"
    rolling = ticks(process)[next(i for i, t in enumerate(ticks(process)) if t["workers_ready"] == 2) :]
    counts = [(t["workers_ready"], t["workers"]) for t in rolling if t["reason"] != "Draining"]
    assert min(r for r, _ in counts) == 1
    assert max(n for _, n in counts) == 2, "never more than there may be"


def test_the_last_worker_that_understands_what_is_queued_stays_beside_the_new_one(shop: Shop) -> None:
    shop.manifest.write_text(MANIFEST.replace("min: 2", "min: 1"))
    shop.enqueue({"n": 1, "until": "go"})
    process = shop.up()
    started(process, shop)
    (old,) = shop.workers()
    (shop.folder / "jobs.py").write_text(APP.replace("version=1", "version=2"))
    process.signal(signal.SIGHUP)
    ready(process, 2)
    shop.enqueue({"n": 2})
    eventually(lambda: "2 1" in shop.notes(), within=30, what="a job of the old version")
    eventually(lambda: "(1 of note version 1)" in process.text, within=30)
    assert old in shop.workers()
    with shop.database.connect() as connection:
        queue.enqueue(connection, "email", "note", {"n": 3}, version=2)
    eventually(lambda: "3 1" in shop.notes(), within=30, what="a job of the new version")
    shop.touch("go")
    eventually(lambda: len(shop.workers()) == 1 and old not in shop.workers(), within=30, what="the old one's end")
    assert shop.jobs() == [("done", 1)] * 3, "nobody was interrupted"
    process.signal(signal.SIGINT)
    assert process.wait(within=30) == 0, process.text


# A session's first terminal to be opened becomes its own, and tells it when it goes away.
ON_A_TERMINAL = """
import os, sys
terminal = os.open(sys.argv[1], os.O_RDWR)
for descriptor in range(3):
    os.dup2(terminal, descriptor)
os.execv(sys.executable, sys.argv[2:])
"""


def test_a_terminal_that_goes_away_drains(shop: Shop, run: Callable[..., Process]) -> None:
    shop.enqueue({"n": 1, "until": "go"})
    ours, theirs = pty.openpty()
    name = os.ttyname(theirs)
    process = run(sys.executable, "-c", ON_A_TERMINAL, name, *shop.command(), cwd=shop.folder)
    started(process, shop)
    os.close(theirs)
    os.close(ours)
    shop.touch("go")
    assert process.wait(within=30) == 0
    assert shop.jobs() == [("done", 1)]
    assert none_left(shop)


def test_a_manifest_that_is_broken_meanwhile_changes_nothing(shop: Shop) -> None:
    process = shop.up()
    ready(process)
    before = shop.workers()
    shop.manifest.write_text(MANIFEST.replace("timeout: 20s", "timeout: 20 parsecs"))
    process.signal(signal.SIGHUP)
    process.wait_for_line("restart refused, nothing was changed.*20 parsecs")
    process.signal(signal.SIGTERM)
    assert shop.workers() == before
    assert process.wait(within=30) == 0, process.text


def test_an_app_that_does_not_import_is_said_once_with_its_own_words(shop: Shop) -> None:
    shop.manifest.write_text(MANIFEST.replace("jobs:app", "jibs:app"))
    shop.enqueue({"n": 1})
    process = shop.up("--until-empty")
    assert process.wait(within=60) == 1, process.text
    said = [json.loads(line)["message"] for line in process.out if '"error"' in line]
    assert len([m for m in said if "do not come up" in m and "jobs wait" not in m]) == 1
    assert all("jibs" in m for m in said), said
    assert shop.jobs() == [("pending", 0)]


def test_jobs_of_a_kind_nobody_has_end_the_wait(shop: Shop) -> None:
    shop.enqueue({"n": 1})
    (shop.folder / "jobs.py").write_text(APP.replace('"note"', '"other"'))
    process = shop.up("--until-empty")
    assert process.wait(within=60) == 1, process.text
    assert "no worker here understands 1 ready jobs" in process.text


def test_jobs_of_a_class_that_is_in_no_manifest_are_said(shop: Shop) -> None:
    shop.enqueue({}, {})
    shop.manifest.write_text(MANIFEST.replace("name: email", "name: mail"))
    process = shop.up("--until-empty")
    assert process.wait(within=60) == 0, process.text
    assert "class email is not in the manifest: nobody here works on its 2 jobs" in process.text


def test_a_reserve_that_leaves_no_connection_is_refused(shop: Shop) -> None:
    shop.manifest.write_text(MANIFEST.replace("{units: 100}", "{connections: true, reserve: 100000}"))
    process = shop.up("--until-empty")
    assert process.wait(within=60) == 2, process.text
    assert "spec.reserve: 100000 leaves nothing of the" in process.text


def test_a_bad_manifest_starts_nothing_and_names_every_field(shop: Shop) -> None:
    shop.manifest.write_text(MANIFEST.replace("20s", "20 parsecs").replace("min: 2", 'min: "2"'))
    process = shop.up()
    assert process.wait() == 2
    where = "error: jobqueue.yaml: JobQueue shop: spec.classes[0]"
    assert process.lines == [
        f'{where}.timeout: "20 parsecs" is not a duration; write e.g. 30s, 2m, 1h',
        f'{where}.replicas.min: "2" is not a whole number; write e.g. 16, without quotes',
    ]
    assert not (shop.folder / ".jobqueue").exists()


def test_a_database_that_is_not_there_is_one_clear_line(shop: Shop) -> None:
    process = shop.up(dsn="postgresql://nobody@127.0.0.1:1/none")
    assert process.wait(within=30) == 1
    assert len(process.lines) == 1, process.text
    assert "127.0.0.1" in process.text


def test_one_up_a_state_directory(shop: Shop) -> None:
    first = shop.up()
    ready(first)
    second = shop.up()
    assert second.wait(within=30) == 2
    assert "another `jobqueue up` uses" in second.text
    first.signal(signal.SIGTERM)
    assert first.wait(within=30) == 0


def test_a_second_leader_ends_the_first_which_stops_acting(shop: Shop, tmp_path: Path) -> None:
    first = shop.up()
    ready(first)
    shop.enqueue({"n": 1, "until": "go"})
    started(first, shop)
    second = shop.up("--state-dir", str(tmp_path / "second"))
    first.wait_for_line("another operator has taken this database over; this one stops acting and drains: up@")
    first.wait_for_line("draining")
    shop.touch("go")
    assert first.wait(within=30) == 1, first.text
    ready(second)
    assert shop.jobs() == [("done", 1)], "what ran was finished"
    second.signal(signal.SIGTERM)
    assert second.wait(within=30) == 0, second.text
    with shop.database.connect() as connection:
        assert queue.snapshot(connection)["database"]["epoch"] == 2, "the first did not fight for it"


def test_a_database_that_goes_away_stops_nobody(shop: Shop, pg: Server) -> None:
    process = shop.up()
    ready(process)
    before = shop.workers()
    pg.stop()
    process.wait_for_line("the queue cannot be read; the workers stay as they are")
    eventually(lambda: ticks(process)[-1]["reason"] == "QueueNotVisible", within=20)
    pg.start()
    process.wait_for_line("the queue can be read again", within=30)
    shop.enqueue({"n": 1})
    eventually(lambda: shop.jobs() == [("done", 1)], within=30)
    assert shop.workers() == before
    process.signal(signal.SIGTERM)
    assert process.wait(within=30) == 0


def test_workers_of_a_killed_up_are_drained_by_the_next(shop: Shop) -> None:
    first = shop.up()
    ready(first)
    before = shop.workers()
    first.signal(signal.SIGKILL)
    first.wait()
    assert all(alive(pid) for pid in before.values())
    second = shop.up("--for", "0")
    assert second.wait(within=60) == 0, second.text
    for name, pid in before.items():
        assert f"{name} was left over from an earlier run; drained" in second.text
        assert not alive(pid)


@pytest.fixture
def open_folder() -> Iterator[str]:
    """A folder that the server's own user may enter; pytest's are closed to it again by the next pytest that runs."""
    with tempfile.TemporaryDirectory(prefix="jobqueue-up-") as folder:
        yield folder


@pytest.mark.timeout(180)
def test_without_a_dsn_it_brings_its_own_database_and_keeps_the_data(
    shop: Shop, open_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [n for n in os.environ if n.startswith(("JOBQUEUE_DSN", "PG"))]:
        monkeypatch.delenv(name)
    first = shop.up("--state-dir", open_folder, dsn=None)
    dsn = json.loads(first.wait_for_line('"dsn"', within=60).string)["dsn"]
    ready(first)
    with psycopg.connect(dsn, autocommit=True) as connection:
        queue.enqueue(connection, "email", "note", {"n": 7})
    started(first, shop)
    first.signal(signal.SIGTERM)
    assert first.wait(within=60) == 0, first.text
    second = shop.up("--until-empty", "--state-dir", open_folder, dsn=None)
    assert second.wait(within=60) == 0, second.text
    assert ticks(second)[-1]["done"] == 1
