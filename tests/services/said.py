"""A reporter that keeps what it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobqueue_operator.queues.saying import Level
    from jobqueue_operator.up.report import CapacityRow, Row


class Said:
    """Keeps lines, and the rows of the last tick."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.rows: Sequence[Row] = ()

    def say(self, level: Level, message: str, **_details: object) -> None:
        self.lines.append(f"{level}: {message}")

    def tick(self, rows: Sequence[Row], _capacities: Sequence[CapacityRow] = ()) -> None:
        self.rows = rows

    def close(self) -> None: ...
