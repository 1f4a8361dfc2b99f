"""Where lines about what happens go."""

from __future__ import annotations

from typing import Literal, Protocol

Level = Literal["info", "warning", "error"]


class Says(Protocol):
    """Takes lines for people."""

    def say(self, level: Level, message: str, **details: object) -> None:
        """Tell that something happened. `details` are names for machines: class, worker, what."""
