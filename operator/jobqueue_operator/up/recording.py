"""Every tick is recorded as a line of JSON, in two files of bounded size.

`FILE` is written to, and becomes `FILE.1` when it is full; what that held before is gone. planner/record.py says what a
line is.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from jobqueue_operator.planner.record import Recorder, RecordError, Tick

if TYPE_CHECKING:
    from pathlib import Path

    from jobqueue_operator.up.report import Reporter

BYTES_MOST = 32 * 1024 * 1024
"""Bytes after which a file is full."""


class Recording:
    """Appends ticks to a file. That one cannot be written is said once; it stops nothing, and the next one is tried."""

    def __init__(self, file: Path, reporter: Reporter, *, bytes_most: int = BYTES_MOST) -> None:
        self._file = file
        self._reporter = reporter
        self._bytes_most = bytes_most
        self._recorder = Recorder()
        self._failed = False

    def write(self, tick: Tick) -> None:
        """Append one tick."""
        try:
            self._make_room()
            self._append(f"{self._recorder.line(tick)}\n".encode())
        except (OSError, RecordError) as error:
            self._recorder.fresh()
            if not self._failed:
                self._failed = True
                reason = error.strerror if isinstance(error, OSError) else str(error)
                self._reporter.say("warning", f"decisions are not recorded in {self._file}: {reason}; tried again")
            return
        if self._failed:
            self._failed = False
            self._reporter.say("info", f"decisions are recorded in {self._file} again")

    def _make_room(self) -> None:
        try:
            full = self._file.stat().st_size >= self._bytes_most
        except FileNotFoundError:
            self._recorder.fresh()  # it may have been taken away under us
            return
        if full:
            self._file.replace(self._file.with_name(f"{self._file.name}.1"))
            self._recorder.fresh()

    def _append(self, line: bytes) -> None:
        with self._file.open("ab", buffering=0) as file:
            end = file.tell()
            if file.write(line) != len(line):
                # A torn line would take the next one with it.
                file.truncate(end)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
