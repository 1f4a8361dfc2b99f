"""One JSON line for each tick and for each thing that happens: for pipes, files and programs."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jobqueue_operator.queues.saying import Level
    from jobqueue_operator.up.report import CapacityRow, Row


def _now() -> datetime:
    return datetime.now(UTC)


class Lines:
    """Writes to a stream; a reader that has gone away is no reason to stop working."""

    def __init__(self, stream: TextIO, *, clock: Callable[[], datetime] = _now) -> None:
        self._stream = stream
        self._clock = clock

    def say(self, level: Level, message: str, **details: object) -> None:
        """Write an event."""
        self._write({"event": "message", "level": level, "message": message, **details})

    def tick(self, rows: Sequence[Row], capacities: Sequence[CapacityRow] = ()) -> None:
        """Write the state."""
        self._write(
            {"event": "tick", "classes": [_json(r) for r in rows], "downstreams": [_json(c) for c in capacities]}
        )

    def close(self) -> None:
        """Do nothing: the stream is not ours."""

    def _write(self, entry: dict[str, object]) -> None:
        line = json.dumps({"time": self._clock().isoformat(timespec="milliseconds"), **entry}, default=str)
        with contextlib.suppress(OSError, ValueError):  # ValueError: the stream was closed
            self._stream.write(line + "\n")
            self._stream.flush()


def _json(row: Row | CapacityRow) -> dict[str, Any]:
    return asdict(row, dict_factory=lambda pairs: {name.rstrip("_"): value for name, value in pairs})
