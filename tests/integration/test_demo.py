"""The demo proves what it says: it passes as a whole, and its checks fail when what they check is broken."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import downstream
import inputs
import psutil
import pytest
from check import Attempt, Evidence, Name, Value, judge, recompute, tally
from inputs import NoInput, gather

from scaling import Scaling, share_late
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

RUN = Path(__file__).parents[2] / "examples" / "demo" / "run.py"
WITHIN = 115.0  # seconds; the demo itself breaks off earlier

HASHED = Name("file.hash", 1, 0)
COMPRESSED = Name("file.compress", 1, 0)
POISON = Name("demo.poison", 1, 0)


def evidence() -> Evidence:
    """All is well: three jobs, one of which was lost once, and a poison job."""
    values = {HASHED: Value(5, "abc"), COMPRESSED: Value(5, "60"), POISON: Value(0, "repaired")}
    return Evidence(
        enqueued={1: HASHED, 2: COMPRESSED, 3: POISON},
        statuses={1: "done", 2: "done", 3: "done"},
        results=list(values.items()),
        expected=values,
        attempts=[
            Attempt(1, 0, 1, "fast-a/1", "done"),
            Attempt(2, 0, 1, "slow-a/1", "lost"),
            Attempt(2, 0, 2, "slow-b/1", "done"),
            Attempt(3, 0, 1, "slow-b/1", "retry"),
            Attempt(3, 0, 2, "slow-b/1", "dead"),
            Attempt(3, 1, 1, "slow-b/1", "done"),
        ],
        scaling=Scaling(target=20.0, oldest=8.0, late=0.0, woken=0.1, most=4, at_zero=10.0),
        peak=3,
        limit=3,
        slots=4,
        first_start=0.1,
        killed="slow-a",
        poison=3,
        poison_died_after=2,
        replaced=4,
        workers=4,
    )


def scaled(**fields: float | None) -> Evidence:
    return replace(evidence(), scaling=replace(evidence().scaling, **fields))  # type: ignore[arg-type]


def failed(broken: Evidence) -> list[str]:
    return [verdict.claim for verdict in judge(broken) if not verdict.ok]


def test_every_check_holds_when_all_is_well() -> None:
    assert failed(evidence()) == []
    counted = tally(evidence())
    assert (counted.jobs, counted.lost, counted.duplicates) == (3, 0, 0)
    assert counted.redelivered == {"lost": 1, "poison": 1}
    assert counted.attempts == {1: 1, 2: 1, 3: 1}


@pytest.mark.parametrize(
    ("broken", "claim"),
    [
        (replace(evidence(), first_start=3.0), "work starts on a burst"),
        (scaled(woken=2.1), "the class at zero wakes"),
        (scaled(woken=None), "the class at zero wakes"),
        (scaled(oldest=20.1, late=0.01), "its oldest job stays younger than its target"),
        (scaled(oldest=0.0), "its oldest job stays younger than its target"),
        (scaled(most=1), "it grows with the burst, and goes back to zero"),
        (scaled(at_zero=None), "it grows with the burst, and goes back to zero"),
        (replace(evidence(), enqueued_twice=1), "the same keys enqueued again create nothing"),
        (replace(evidence(), peak=4), "the downstream's limit is held, and reached by more than one"),
        (replace(evidence(), peak=1), "the downstream's limit is held, and reached by more than one"),
        (replace(evidence(), slots=3), "the downstream's limit is held, and reached by more than one"),
        (replace(evidence(), replaced=3), "the rolling restart replaced every worker and cost no attempt"),
        (replace(evidence(), restart_spent=1), "the rolling restart replaced every worker and cost no attempt"),
        (replace(evidence(), poison_died_after=0), "the poison job died, was redriven, and is done"),
        (replace(evidence(), results=evidence().results[1:]), "every job is done and its result recorded"),
        (replace(evidence(), statuses={2: "done", 3: "done"}), "every job is done and its result recorded"),
        (replace(evidence(), results=[*evidence().results, (HASHED, Value(5, "abc"))]), "no effect was recorded twice"),
        (replace(evidence(), exit_status=1), "the workers drained, and no process is left"),
        (replace(evidence(), survivors=["123"]), "the workers drained, and no process is left"),
        (replace(evidence(), registered=1), "the workers drained, and no process is left"),
    ],
)
def test_a_check_fails_when_what_it_checks_is_broken(broken: Evidence, claim: str) -> None:
    assert claim in failed(broken)


@pytest.mark.parametrize(
    ("waits", "late"),
    [
        ([], 0.0),
        ([(0.0, 5.0), (1.0, 10.0)], 0.0),
        ([(0.0, 15.0), (0.0, 20.0)], 0.5),  # late from 10 to 20, of 20 seconds
        ([(0.0, 12.0), (1.0, 12.0), (88.0, 100.0)], 0.04),  # from 10 to 12 and from 98 to 100
        ([(5.0, 5.0)], 0.0),
    ],
)
def test_the_time_over_the_target_is_counted_once_however_many_waited(
    waits: list[tuple[float, float]], late: float
) -> None:
    assert share_late(waits, target=10.0) == pytest.approx(late)


def test_a_wrong_result_is_named() -> None:
    broken = replace(evidence(), results=[(HASHED, Value(5, "abd")), *evidence().results[1:]])
    (verdict,) = [v for v in judge(broken) if not v.ok]
    assert verdict.claim == "every result equals an independent recomputation"
    assert verdict.detail.startswith("2 of 3; wrong: ")


def test_a_result_of_a_file_that_changed_is_not_compared() -> None:
    broken = replace(
        evidence(), results=[(HASHED, Value(6, "xyz")), *evidence().results[1:]], changed=frozenset({HASHED})
    )
    assert failed(broken) == []


def test_a_job_that_another_worker_lost_is_not_explained_by_the_kill() -> None:
    more = [*evidence().attempts, Attempt(1, 0, 1, "fast-b/1", "lost")]
    assert failed(replace(evidence(), attempts=more)) == ["no other job lost an attempt"]


def test_a_kill_that_lost_nothing_proves_nothing() -> None:
    none_lost = [a for a in evidence().attempts if a.outcome != "lost"]
    assert failed(replace(evidence(), attempts=none_lost)) == [
        "what the worker held that was killed with -9 was run again and is done"
    ]


@pytest.fixture
def odd_folder(tmp_path: Path) -> Path:
    """Names that hurt, nothing inside, links and pipes: what real folders hold."""
    folder = tmp_path / "odd %41 ünï [bold]"
    folder.mkdir()
    (folder / "empty").touch()
    (folder / "new\nline 'and' \"quotes\"").write_bytes(b"x" * 70_000)
    Path(os.fsdecode(os.fsencode(folder) + b"/not-\xff\xfe-text")).write_bytes(b"y")
    (folder / "#?&=%20").write_bytes(b"z" * 3)
    (folder / "link").symlink_to("empty")
    os.mkfifo(folder / "pipe")
    return folder


def test_odd_names_are_found_and_read_by_their_very_bytes(odd_folder: Path) -> None:
    found = gather(str(odd_folder))
    assert sorted(file.path.read_bytes()[:1] for file in found.files) == [b"", b"x", b"y", b"z"]
    assert all(file.uri.isascii() for file in found.files)
    assert all(file.unchanged() for file in found.files)
    assert found.remarks() == ["1 of the chosen are empty files; they are hashed and compressed like others"]
    again = recompute(found.files)
    assert len(again) == 2 * len(found.files)


def test_what_cannot_be_read_or_is_too_large_is_left_out_and_said(
    odd_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "FILE_MOST", 1000)
    monkeypatch.setattr(inputs, "_readable", lambda path: path.name != "#?&=%20")
    found = gather(str(odd_folder))
    assert len(found.files) == 2
    remarks = "; ".join(found.remarks())
    assert "left out 1 larger than" in remarks
    assert "left out what cannot be read: " in remarks
    assert "#?&=%20" in remarks


def test_a_large_folder_is_cut_by_lot_the_same_way_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (tmp_path / f"{number}").write_bytes(b"x" * number)
    monkeypatch.setattr(inputs, "FILES_MOST", 5)
    first, second = gather(str(tmp_path)), gather(str(tmp_path))
    assert first.files == second.files
    assert len(first.files) == 5
    assert "left out 15 by lot, so that this ends within two minutes" in first.remarks()


@pytest.mark.parametrize("content", ["nothing", "a missing folder", "a file"])
def test_nothing_to_work_on_is_said_with_exit_status_2(tmp_path: Path, content: str) -> None:
    folder = tmp_path / "input"
    if content == "nothing":
        folder.mkdir()
    elif content == "a file":
        folder.touch()
    with pytest.raises(NoInput):
        gather(str(folder))
    done = subprocess.run(
        [sys.executable, str(RUN)],
        env={**os.environ, "DEMO_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"DEMO_DIR={folder}")
    assert done.stderr.count("\n") == 1


@pytest.fixture
def service() -> Iterator[downstream.Downstream]:
    with downstream.Downstream() as running:
        yield running


def test_the_downstream_counts_callers_at_once(service: downstream.Downstream) -> None:
    inside = threading.Barrier(4, timeout=10)
    counted = threading.Event()

    def call() -> None:
        with downstream.session(service.address):
            inside.wait()
            counted.wait(10)

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    inside.wait()
    assert service.now == 3
    counted.set()
    for caller in callers:
        caller.join(10)
    with downstream.session(service.address):
        pass
    assert (service.now, service.peak, service.calls, service.broken) == (0, 3, 4, 0)


def test_a_caller_that_was_killed_is_no_longer_counted(service: downstream.Downstream) -> None:
    host, _, port = service.address.rpartition(":")
    with socket.create_connection((host, int(port))) as caller:
        caller.sendall(b"enter\n")
        eventually(lambda: service.now == 1, what="the caller is counted")
    eventually(lambda: service.now == 0, what="it is no longer counted")
    assert service.broken == 1


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder for temporary files whose name is short enough for a socket in it."""
    folder = Path(tempfile.mkdtemp(prefix="jq-demo-", dir="/tmp"))
    yield folder
    for process in below(folder):
        process.kill()
    shutil.rmtree(folder, ignore_errors=True)


def below(folder: Path) -> list[psutil.Process]:
    """Processes that know the folder: the demo, the workers, PostgreSQL."""
    found = []
    for process in psutil.process_iter():
        try:
            known = [*process.cmdline(), *process.environ().values()]
        except psutil.Error:
            continue
        if any(str(folder) in text for text in known) and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def left(place: Path) -> list[str]:
    """Files left in the folder, but for the lock that all embedded servers of a user share."""
    files = [str(file.relative_to(place)) for file in place.rglob("*") if not file.is_dir()]
    return [name for name in files if name != f"jobqueue-{os.geteuid()}/.lockfile"]


def start(place: Path, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(RUN)],
        env={**os.environ, "DEMO_DIR": str(folder), "TMPDIR": str(place)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def test_the_whole_demo_holds_and_leaves_nothing_behind(place: Path, odd_folder: Path) -> None:
    demo = start(place, odd_folder)
    said, _ = demo.communicate(timeout=WITHIN)
    assert demo.returncode == 0, said
    assert "FAILED" not in said
    assert "few files, so each is worked on 100 times" in said
    assert "1 of the chosen are empty files" in said
    assert "All 14 checks hold" in said.splitlines()[-1]
    assert left(place) == []
    assert below(place) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_cleans_up(place: Path, odd_folder: Path, number: signal.Signals) -> None:
    demo = start(place, odd_folder)
    assert demo.stdout is not None
    said = ""
    for line in demo.stdout:
        said += line
        if "kill -HUP" in line:
            break
    os.killpg(demo.pid, number)  # as a terminal does: everybody in the foreground gets it
    rest, _ = demo.communicate(timeout=60)
    assert demo.returncode == 130, said + rest
    assert "interrupted; everything was stopped" in rest
    assert "Traceback" not in rest
    assert left(place) == []
    assert below(place) == []
