"""Workers of an earlier run that outlived it, because it was killed. They are drained before new ones start.

Each worker is written down in a file of the state directory while it lives, with the moment its process was created,
so that a process id that was used again is not mistaken for it.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import psutil

from jobqueue_operator.platforms.local.process import kill_left

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE = 1.0
"""Seconds to wait after SIGKILL; a process that is still there then waits in the kernel."""


@dataclass(frozen=True, slots=True)
class Record:
    """One worker, as written down."""

    name: str
    class_: str
    uid: str
    pid: int
    created: float
    grace: float


def write(folder: Path, name: str, class_: str, uid: str, pid: int, grace: float) -> None:
    """Write a worker down. A process that is gone already is not."""
    with contextlib.suppress(psutil.Error):
        record = Record(name, class_, uid, pid, psutil.Process(pid).create_time(), grace)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(asdict(record)))


def erase(folder: Path, name: str) -> None:
    """Strike a worker that is gone."""
    (folder / f"{name}.json").unlink(missing_ok=True)


def end_all(folder: Path) -> list[Record]:
    """Drain every survivor, wait as long as its grace period allows, kill what is left; return who was found alive."""
    alive = []
    for file in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        with contextlib.suppress(OSError, ValueError, TypeError):
            record = Record(**json.loads(file.read_text()))
            process = _process(record)
            if process is not None:
                alive.append((record, process))
            else:
                kill_left(record.uid)  # its supervisor is gone, its children may not be
        file.unlink(missing_ok=True)
    for _, process in alive:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    if alive:
        psutil.wait_procs([p for _, p in alive], timeout=max(r.grace for r, _ in alive))
    for record, process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
        kill_left(record.uid)
    psutil.wait_procs([p for _, p in alive], timeout=PATIENCE)
    return [record for record, _ in alive]


def _process(record: Record) -> psutil.Process | None:
    try:
        process = psutil.Process(record.pid)
        same = abs(process.create_time() - record.created) < 1.0
    except psutil.Error:
        return None
    return process if same and process.status() != psutil.STATUS_ZOMBIE else None
