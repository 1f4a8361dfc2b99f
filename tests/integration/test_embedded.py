"""The embedded PostgreSQL starts where temporary folders are shared, or have long names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

START = """
import sys
from pathlib import Path
import psycopg
from jobqueue_operator.up.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]) / "postgres")
with psycopg.connect(server.start()) as connection:
    print(connection.execute("SELECT 1").fetchone())
server.stop()
"""


@pytest.fixture
def temporary() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="jq-t-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def start(temporary: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", START, str(temporary / "state")],
        env={k: v for k, v in os.environ.items() if k != "XDG_RUNTIME_DIR"} | {"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_another_user_s_lock_is_not_in_the_way(temporary: Path) -> None:
    (temporary / ".lockfile").mkdir()  # cannot be opened, not even by root
    assert start(temporary) == "(1,)\n"


def test_a_temporary_folder_with_a_long_name(temporary: Path) -> None:
    long = temporary / ("n" * 60) / ("m" * 60)
    long.mkdir(parents=True)
    assert start(long) == "(1,)\n"
