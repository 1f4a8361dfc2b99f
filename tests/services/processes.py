"""Processes that tests start: their output, bounded waits, and an end in every case."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
from typing import TYPE_CHECKING

from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_END_WITHIN = 10.0  # seconds


class Process:
    """One command in a process group of its own, with its standard output and error collected by line."""

    def __init__(
        self, *command: str | Path, env: Mapping[str, str] | None = None, cwd: str | Path | None = None
    ) -> None:
        """Start `command`; `env` is added to our own environment."""
        self.command = [str(part) for part in command]
        self.lines: list[str] = []  # standard output and standard error, in the order they arrived
        self.out: list[str] = []  # standard output alone
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
            cwd=cwd,
            start_new_session=True,
        )
        self._readers = [
            threading.Thread(target=self._collect, args=(stream, stream is self._process.stdout), daemon=True)
            for stream in (self._process.stdout, self._process.stderr)
        ]
        for reader in self._readers:
            reader.start()

    def _collect(self, stream: object, is_output: bool) -> None:  # noqa: FBT001
        for line in stream:  # type: ignore[attr-defined]
            text = line.rstrip("\n")
            self.lines.append(text)
            if is_output:
                self.out.append(text)

    @property
    def pid(self) -> int:
        """Its process id, which is its group's id as well."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code; negative for a signal; None while it runs."""
        return self._process.poll()

    @property
    def text(self) -> str:
        """Everything printed so far."""
        return "\n".join(self.lines)

    def wait_for_line(self, pattern: str, *, within: float = 20.0, count: int = 1) -> re.Match[str]:
        """Wait for the `count`-th line that `pattern` is found in; fail early when the process has ended."""
        expression = re.compile(pattern)

        def found() -> re.Match[str] | None:
            ended = self.code is not None
            if ended:
                self._join()
            hits = [hit for line in list(self.lines) if (hit := expression.search(line))]
            if len(hits) >= count:
                return hits[count - 1]
            if ended:
                raise AssertionError(f"{self.command} ended with {self.code} before {pattern!r}:\n{self.text}")
            return None

        try:
            return eventually(found, within=within, what=f"the line {pattern!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}\nprinted so far:\n{self.text}") from None

    def wait(self, *, within: float = 20.0) -> int:
        """Wait for its end and return the exit code; AssertionError with its output after `within` seconds."""
        try:
            code = self._process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.command} still runs after {within:g} s:\n{self.text}") from None
        self._join()
        return code

    def signal(self, number: int) -> None:
        """Send a signal to the process alone."""
        self._process.send_signal(number)

    def signal_group(self, number: int) -> None:
        """Send a signal to the process and all it started in its group."""
        os.killpg(self.pid, number)

    def close(self) -> None:
        """Kill what is left of the group, reap it, and close its pipes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(_END_WITHIN)
        self._join()
        for reader, stream in zip(self._readers, (self._process.stdout, self._process.stderr), strict=True):
            # Whoever left the group and holds the pipe open would hold us up in close() as well.
            if stream is not None and not reader.is_alive():
                stream.close()

    def _join(self) -> None:
        # A grandchild outside the group may hold the pipe open: bounded.
        for reader in self._readers:
            reader.join(1.0)
