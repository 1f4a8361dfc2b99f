"""`jobqueue explain` on records: what it prints, and what it says of records and options that are wrong."""

import gzip
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from jobqueue.cli import main
from jobqueue_operator.planner.record import Recorder
from unit.planner.world import Class, run, spec

REPLICAS = {"min": 1, "max": 3}
SECOND = 60
"""The first line of a second file."""
MANIFEST = """
apiVersion: jobqueue.dev/v1alpha1
kind: JobQueue
metadata: {name: shop}
spec:
  app: jobs:app
  classes:
  - {name: email, timeout: 30s, replicas: {min: 1, max: 6}}
"""


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


Explain = Callable[..., Ended]


@pytest.fixture
def explain(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Explain:
    """Run it in an empty folder, with no database named anywhere."""
    for name in [n for n in os.environ if n.startswith(("JOBQUEUE_", "PG"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Ended:
        code = main(["explain", *arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Ended(code, out, err)

    return call


@pytest.fixture(scope="module")
def recorded() -> list[str]:
    """A hundred ticks from 2025-12-01T00:00:00Z on: quiet, then more than three workers can do."""
    classes = [Class(spec(replicas=REPLICAS), [5.0] * 30 + [60.0] * 30 + [5.0]), Class(spec("invoice"), [1.0])]
    recorder = Recorder()
    found = []
    for count, tick in enumerate(run(classes, 100)):
        if count == SECOND:
            recorder.fresh()
        found.append(recorder.line(tick) + "\n")
    return found


@pytest.fixture
def record(recorded: list[str], tmp_path: Path) -> Path:
    file = tmp_path / ".jobqueue" / "decisions.jsonl"
    file.parent.mkdir()
    file.write_text("".join(recorded))
    return file


def test_it_says_what_was_seen_what_the_law_made_of_it_and_what_bound_it(explain: Explain, record: Path) -> None:
    ended = explain("email", "--at", "2025-12-01T00:04:00Z", "--from", str(record))
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(
        "email at 2025-12-01 00:04:00Z: 3 workers\n  MaximumReplicas: replicas.max 3; the demand"
    )
    sections = [text for text in ended.out.splitlines() if text and not text.startswith(" ")][1:]
    assert sections == [
        "seen",
        "law",
        "bounds, in the order in which they were applied",
        "end of a worker",
        "what would change it",
    ]
    assert "  workers    3: 3 ready\n" in ended.out
    assert "  no replicas.max 3 " in ended.out


def test_without_a_database_it_is_what_up_recorded_here_and_every_class(explain: Explain, record: Path) -> None:
    assert record.exists()
    found = json.loads(explain("--json").out)
    assert (found["at"], found["source"], found["remarks"]) == ("2025-12-01T00:08:15.000+00:00", "record", [])
    assert [one["class"] for one in found["classes"]] == ["email", "invoice"]
    one = found["classes"][0]
    assert one["repeats"] is True
    assert one["decision"]["terms"]["slots"] == 10
    assert {change["what"] for change in one["changes"]} >= {"twice the arrivals", "target 2m instead of 1m"}


def test_the_file_before_standard_input_and_compressed_ones_are_read(
    explain: Explain, record: Path, recorded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = record.with_name("decisions.jsonl.1")
    before.write_text("".join(recorded[:SECOND]))
    record.write_text("".join(recorded[SECOND:]))
    at = ("invoice", "--at", "2025-12-01T00:04:00Z")
    expected = explain(*at)
    assert expected.out.startswith("invoice at 2025-12-01 00:04:00Z: ")
    Path("week.jsonl.gz").write_bytes(gzip.compress("".join(recorded).encode()))
    assert explain(*at, "--from", "week.jsonl.gz").out == expected.out
    with before.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert explain(*at, "--from", "-").out == expected.out


def test_another_spec_on_a_record(explain: Explain, record: Path) -> None:
    Path("new.yaml").write_text(MANIFEST)
    ended = explain("--replay", str(record), "--spec", "new.yaml")
    assert ended.code == 0
    assert ended.out.startswith("100 decisions from 2025-12-01 00:00:00Z to 2025-12-01 00:08:15Z\n")
    assert "warning: class invoice is not in the new spec: its workers would end\n" in ended.err
    found = json.loads(explain("--replay", str(record), "--spec", "new.yaml", "--json").out)
    email = found["classes"][0]
    assert (email["old"]["peak"], email["new"]["peak"], email["new"]["at_cap"] < email["old"]["at_cap"]) == (3, 6, True)
    assert email["new"]["max_age"] < email["old"]["max_age"]
    assert email["differences"][0]["begin"].startswith("2025-12-01T00:0")


def test_lines_that_cannot_be_read_are_left_out_and_said(explain: Explain, recorded: list[str]) -> None:
    Path("torn.jsonl").write_text("".join(recorded[:3]) + recorded[3][:400])
    ended = explain("--from", "torn.jsonl")
    assert ended.code == 0
    assert ended.out.startswith("email at 2025-12-01 00:00:10Z")
    assert ended.err.startswith("warning: lines left out: 1\nwarning: line 4 was left out: Invalid JSON")


HINT = "hint: `jobqueue up` records its decisions in .jobqueue/decisions.jsonl; --dsn explains a live queue\n"
NO = "error: --at: .jobqueue/decisions.jsonl holds no decision of"
RECORD, OTHER = ".jobqueue/decisions.jsonl", "or another record with --from"
WRONG = {
    "nobody": "error: class: there is no class 'nobody'\nhint: the classes are: email, invoice\n",
    "--from none.jsonl": f"error: none.jsonl: cannot be read: No such file or directory\n{HINT}",
    "--from .": f"error: .: cannot be read: Is a directory\n{HINT}",
    "--from empty.jsonl": f"error: empty.jsonl: holds no decision\n{HINT}",
    "--from cut.jsonl.gz": "error: cut.jsonl.gz: cannot be read: Compressed file ended before",
    "--from notes.txt": "error: notes.txt: holds no decision (line 1 was left out: Invalid JSON: ",
    "--from later.jsonl": "error: later.jsonl: line 1 is of version 2, and this release reads version 1; use",
    "--at 2025-11-30T00:00Z": f"{NO} 2025-11-30 00:00:00Z; the next is of 2025-12-01 00:00:00Z\n"
    f"hint: --at 2025-12-01T00:00:00Z, {OTHER}\n",
    "--at 2025-12-02T00:00Z": f"{NO} 2025-12-02 00:00:00Z; the last before it is of 2025-12-01 00:08:15Z\n"
    f"hint: --at 2025-12-01T00:08:15Z, {OTHER}\n",
    "--at noon": "error: --at: 'noon' is no time\nhint: write 2030-01-31T08:00:00Z, or +10m, or -1h\n",
    "--from x --dsn y": "error: --from and --dsn or --dsn-dir: give one of them\n",
    "--spec new.yaml": "error: --replay and --spec go together\n",
    "email --replay x --spec y": "error: --replay does not use CLASS\n",
    "--replay empty.jsonl --spec new.yaml": f"error: empty.jsonl: holds no decision\n{HINT}",
    f"--replay {RECORD} --spec torn.yaml": "error: torn.yaml: line 1, column ",
    f"--replay {RECORD} --spec other.yaml": "error: other.yaml: none of its classes (mail) is in the record\n"
    "hint: the record has: email, invoice; give the class its recorded name\n",
}


@pytest.mark.parametrize(("arguments", "says"), WRONG.items())
def test_what_is_wrong_is_named(explain: Explain, record: Path, recorded: list[str], arguments: str, says: str) -> None:
    assert record.exists()
    files = {
        "empty.jsonl": "",
        "notes.txt": "milk\n",
        "later.jsonl": recorded[0].replace('"version":1', '"version":2'),
        "new.yaml": MANIFEST,
        "torn.yaml": "a: [1",
        "other.yaml": MANIFEST.replace("email", "mail"),
    }
    for name, text in files.items():
        Path(name).write_text(text)
    Path("cut.jsonl.gz").write_bytes(gzip.compress("".join(recorded).encode())[:-9])
    ended = explain(*arguments.split())
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(says)
