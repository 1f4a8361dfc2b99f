"""Signals: the facts of a queue at one moment, and their Prometheus form.

`decode` turns what the SQL function `snapshot()` answers into frozen dataclasses; `collector` exposes those to
Prometheus (it needs prometheus-client, of the extra `worker`; this module does not).
"""

from jobqueue.signals.snapshot import (
    ArrivalSnapshot,
    AttemptSnapshot,
    ClassSnapshot,
    DatabaseSnapshot,
    DownstreamSnapshot,
    Snapshot,
    SpanSnapshot,
    WorkerSnapshot,
    decode,
)

__all__ = [
    "ArrivalSnapshot",
    "AttemptSnapshot",
    "ClassSnapshot",
    "DatabaseSnapshot",
    "DownstreamSnapshot",
    "Snapshot",
    "SpanSnapshot",
    "WorkerSnapshot",
    "decode",
]
