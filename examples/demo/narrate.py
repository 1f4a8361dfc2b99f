"""How the demo speaks: short lines with the time, colours and a live line on a terminal, plain text elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from check import Verdict
    from rich.status import Status

PROGRESS_EVERY = 5.0
"""Seconds between two progress lines where there is no terminal."""
TIME, NAME = 9, 17
"""Columns of a step's time and of its name."""


class Narrator:
    """Tells the story. Markup is never read from what it is given: file names may hold anything."""

    def __init__(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")  # names that are not text, terminals that are not UTF-8
        self._console = Console(highlight=False, soft_wrap=True)
        self._began = time.monotonic()
        self._status: Status | None = None
        self._progress_at = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._began

    def title(self, text: str) -> None:
        """Write a heading."""
        self._console.print()
        self._console.print(Text(text, style="bold"))

    def say(self, text: str) -> None:
        """Write a plain line."""
        self._console.print(Text(text))

    def step(self, name: str, text: str) -> None:
        """Write what happens now."""
        line = Text()
        line.append(f"{self.elapsed:{TIME - 3}.1f}s  ", style="dim")
        line.append(f"{name:<{NAME}}", style="bold cyan")
        line.append(text)
        self._console.print(line)

    def detail(self, text: str) -> None:
        """Write something that belongs to the last step."""
        self._console.print(Text(" " * (TIME + NAME) + text, style="dim"))

    def progress(self, text: str) -> None:
        """Show where things are: in place on a terminal, now and then elsewhere."""
        if self._console.is_terminal:
            if self._status is None:
                self._status = self._console.status("")
                self._status.start()
            self._status.update(Text(text))
        elif time.monotonic() >= self._progress_at:
            self._progress_at = time.monotonic() + PROGRESS_EVERY
            self.step("", text)

    def still(self) -> None:
        """Take the live line away."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def figures(self, rows: Iterable[tuple[str, str, str]]) -> None:
        """Write the summary: name, figure, explanation."""
        for name, figure, text in rows:
            line = Text(f"  {name:<18}")
            line.append(f"{figure:>8}", style="bold")
            line.append(f"   {text}", style="dim")
            self._console.print(line)

    def verdict(self, verdict: Verdict) -> None:
        """Write one check."""
        line = Text()
        line.append("  ok      " if verdict.ok else "  FAILED  ", style="green" if verdict.ok else "bold red")
        line.append(verdict.claim)
        line.append(f": {verdict.detail}", style="dim")
        self._console.print(line)

    def error(self, text: str) -> None:
        """Write why it ended early, to standard error."""
        self.still()
        Console(stderr=True, highlight=False, soft_wrap=True).print(Text(text, style="bold red"))
