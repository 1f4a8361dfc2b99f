"""A job queue that lives in your PostgreSQL.

Producers need `enqueue`; applications `App` and `Job`. Each name is imported when it is first used, so that a
producer does not pay for the worker.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobqueue.app import App as App
    from jobqueue.errors import (
        CapacityConflict as CapacityConflict,
    )
    from jobqueue.errors import (
        ConfigurationError as ConfigurationError,
    )
    from jobqueue.errors import (
        ConnectionFailed as ConnectionFailed,
    )
    from jobqueue.errors import (
        InvalidInput as InvalidInput,
    )
    from jobqueue.errors import (
        JobQueueError as JobQueueError,
    )
    from jobqueue.errors import (
        KeyConflict as KeyConflict,
    )
    from jobqueue.errors import (
        NotRedrivable as NotRedrivable,
    )
    from jobqueue.errors import (
        QueueError as QueueError,
    )
    from jobqueue.errors import (
        SchemaError as SchemaError,
    )
    from jobqueue.errors import (
        StaleEpoch as StaleEpoch,
    )
    from jobqueue.errors import (
        StaleLease as StaleLease,
    )
    from jobqueue.errors import (
        UnknownClass as UnknownClass,
    )
    from jobqueue.errors import (
        UnknownDownstream as UnknownDownstream,
    )
    from jobqueue.errors import (
        UnknownJob as UnknownJob,
    )
    from jobqueue.errors import (
        WorkerRefused as WorkerRefused,
    )
    from jobqueue.job import Job as Job
    from jobqueue.job import SyncJob as SyncJob
    from jobqueue.outcomes import Dead as Dead
    from jobqueue.outcomes import Retry as Retry
    from jobqueue.outcomes import Snooze as Snooze
    from jobqueue.queue import (
        Enqueued as Enqueued,
    )
    from jobqueue.queue import (
        NewJob as NewJob,
    )
    from jobqueue.queue import (
        cancel as cancel,
    )
    from jobqueue.queue import (
        enqueue as enqueue,
    )
    from jobqueue.queue import (
        enqueue_many as enqueue_many,
    )
    from jobqueue.queue import (
        redact as redact,
    )
    from jobqueue.queue import (
        redrive as redrive,
    )
    from jobqueue.queue import (
        redrive_where as redrive_where,
    )
    from jobqueue.queue import (
        set_class as set_class,
    )
    from jobqueue.queue import (
        set_downstream as set_downstream,
    )
    from jobqueue.queue import (
        set_paused as set_paused,
    )

_HOMES = {
    "jobqueue.app": "App",
    "jobqueue.errors": "CapacityConflict ConfigurationError ConnectionFailed InvalidInput JobQueueError KeyConflict "
    "NotRedrivable QueueError SchemaError StaleEpoch StaleLease UnknownClass UnknownDownstream UnknownJob "
    "WorkerRefused",
    "jobqueue.job": "Job SyncJob",
    "jobqueue.outcomes": "Dead Retry Snooze",
    "jobqueue.queue": "Enqueued NewJob cancel enqueue enqueue_many redact redrive redrive_where set_class "
    "set_downstream set_paused",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME)  # noqa: PLE0605 - the names above, said once


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
