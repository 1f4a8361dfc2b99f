import errno
import os
from pathlib import Path
from typing import Any, Self

import pytest

from jobqueue_operator.planner.facts import Facts
from jobqueue_operator.planner.plan import Plan
from jobqueue_operator.planner.record import Tick, read
from jobqueue_operator.planner.wanted import PoolSpec, Wanted
from jobqueue_operator.resources import ClassSpec
from jobqueue_operator.up.recording import Recording
from services.said import Said

WANTED = Wanted(pools=(PoolSpec(key="email", spec=ClassSpec.model_validate({"name": "email", "timeout": "30s"})),))


def tick(now: float) -> Tick:
    return Tick(now=now, tick=1.0, wanted=WANTED, facts=Facts(), plan=Plan(()))


def moments(file: Path) -> list[float]:
    with file.open() as lines:
        return [found.now for found in read(lines)]


@pytest.fixture
def said() -> Said:
    return Said()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "decisions.jsonl"


def test_runs_one_after_the_other_go_on_in_the_same_file(file: Path, said: Said) -> None:
    for start in (1.0, 3.0):
        recording = Recording(file, said)
        recording.write(tick(start))
        recording.write(tick(start + 1))
    assert moments(file) == [1.0, 2.0, 3.0, 4.0]
    assert said.lines == []


def test_two_files_hold_the_latest_and_each_can_be_read_by_itself(file: Path, said: Said) -> None:
    recording = Recording(file, said, bytes_most=2_000)
    for now in range(200):
        recording.write(tick(float(now)))
    before, last = moments(file.with_name("decisions.jsonl.1")), moments(file)
    assert [*before, *last] == [float(n) for n in range(int(before[0]), 200)]
    assert before[0] > 0
    assert sorted(f.name for f in file.parent.iterdir()) == ["decisions.jsonl", "decisions.jsonl.1"]
    assert all(f.stat().st_size < 4_000 for f in file.parent.iterdir())


def test_a_file_that_cannot_be_written_is_said_once_and_tried_again(file: Path, said: Said) -> None:
    file.mkdir()
    recording = Recording(file, said)
    recording.write(tick(1.0))
    recording.write(tick(2.0))
    file.rmdir()
    recording.write(tick(3.0))
    assert said.lines == [
        f"warning: decisions are not recorded in {file}: Is a directory; tried again",
        f"info: decisions are recorded in {file} again",
    ]
    assert moments(file) == [3.0]


def test_a_full_disk_tears_no_line(file: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = Recording(file, said)
    recording.write(tick(1.0))
    real = Path.open

    class Full:
        """A disk with room for ten more bytes."""

        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def write(self, data: bytes) -> int:
            return int(self.stream.write(data[:10]))

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            self.stream.close()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.stream, name)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda self, *args, **named: Full(real(self, *args, **named)))
        recording.write(tick(2.0))
    recording.write(tick(3.0))
    assert moments(file) == [1.0, 3.0]
    assert os.strerror(errno.ENOSPC) in said.lines[0]


def test_a_file_that_was_taken_away_begins_anew(file: Path, said: Said) -> None:
    recording = Recording(file, said)
    recording.write(tick(1.0))
    file.unlink()
    recording.write(tick(2.0))
    assert moments(file) == [2.0]
