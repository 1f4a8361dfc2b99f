"""What one class's workers are made from: command, environment, place. The local pod template."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobqueue_operator.planner import draining

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from jobqueue_operator.resources import ClassSpec, JobQueue

INHERITED = (
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "LD_LIBRARY_PATH",
)
"""Variables a worker gets from ours, beside LC_*: what a process needs to run at all, and no secrets."""
BROKER = "JOBQUEUE_BROKER_URL"
"""Stands in for the Secret with the broker's login."""
CONTAINER = "worker"
"""The container of a podTemplate that is the worker."""


@dataclass(frozen=True, slots=True)
class Template:
    """One class's workers, but for their names."""

    class_: str
    command: tuple[str, ...]
    """The worker's command; its name and socket are in each worker's environment."""
    drain_command: tuple[str, ...]
    """The preStop command, in the same environment."""
    environment: Mapping[str, str]
    directory: Path
    grace: float
    """Seconds from the first step of the stop sequence to SIGKILL."""

    @property
    def revision(self) -> str:
        """A word that differs when workers made from this would."""
        parts = [
            self.command,
            self.drain_command,
            sorted(self.environment.items()),
            str(self.directory),
            self.grace,
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:10]


def template(
    queue: JobQueue,
    spec: ClassSpec,
    *,
    database: Mapping[str, str],
    directory: Path,
    pass_on: Iterable[str] = (),
    generation: int = 0,
) -> Template:
    """Return what this class's workers are made from.

    `database` holds the variables that say where the queue is (JOBQUEUE_DSN or JOBQUEUE_DSN_DIR, JOBQUEUE_SCHEMA).
    `pass_on` names variables of our own environment, or NAME=VALUE, for the workers. `generation` asks for new
    workers although nothing else changed.
    """
    end = draining.ending(spec)
    jobqueue = (sys.executable, "-m", "jobqueue")
    environment = {name: os.environ[name] for name in os.environ if name in INHERITED or name.startswith("LC_")}
    environment |= declared(spec.pod_template)
    for text in pass_on:
        name, given, value = text.partition("=")
        if given:
            environment[name] = value
        elif name in os.environ:
            environment[name] = os.environ[name]
    # Everything but the two names is told by the environment: an argument would show a password to every user of this
    # machine, and in a cluster it is said in the same way.
    environment |= {
        **database,
        **_wakeup(queue),
        "JOBQUEUE_CONCURRENCY": str(spec.concurrency),
        "JOBQUEUE_DRAIN_TIMEOUT": f"{end.drain_timeout.total_seconds():g}",
        "JOBQUEUE_NAMESPACE": queue.metadata.namespace,
        "JOBQUEUE_QUEUE": queue.metadata.name,
        "JOBQUEUE_LOG_FORMAT": "json",
        "JOBQUEUE_GENERATION": str(generation),
        "PYTHONUNBUFFERED": "1",
    }
    if spec.lease.heartbeat is not None:
        environment["JOBQUEUE_HEARTBEAT"] = f"{spec.lease.heartbeat.total_seconds():g}"
    return Template(
        class_=spec.name,
        command=(*jobqueue, "worker", "--app", queue.spec.app, "--class", spec.name),
        drain_command=(*jobqueue, "drain"),
        environment=environment,
        directory=directory,
        grace=end.grace.total_seconds(),
    )


def _wakeup(queue: JobQueue) -> dict[str, str]:
    wakeup = queue.spec.wakeup
    interval = {"JOBQUEUE_POLL_INTERVAL": f"{wakeup.poll_interval.total_seconds():g}"}
    if wakeup.type != "RabbitMQ":
        return {**interval, "JOBQUEUE_WAKEUP": wakeup.type.lower()}
    if BROKER not in os.environ:
        return {**interval, "JOBQUEUE_WAKEUP": "polling"}
    return {**interval, "JOBQUEUE_WAKEUP": "rabbitmq", BROKER: os.environ[BROKER]}


def declared(pod_template: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment that a podTemplate declares for the worker.

    Literal values are taken as they are. A `valueFrom` points into a cluster; here our own variable of that name
    stands in for it, when there is one.
    """
    spec = pod_template.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    found: dict[str, str] = {}
    for container in containers if isinstance(containers, list) else ():
        if not isinstance(container, dict) or container.get("name") != CONTAINER:
            continue
        entries = container.get("env")
        for entry in entries if isinstance(entries, list) else ():
            name = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(name, str) or not name or "=" in name or "\0" in name:
                continue
            if isinstance(entry.get("value"), str):
                found[name] = entry["value"].replace("\0", "")
            elif "valueFrom" in entry and name in os.environ:
                found[name] = os.environ[name]
    return found
