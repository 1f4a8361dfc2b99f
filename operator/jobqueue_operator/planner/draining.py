"""The arithmetic of a worker's end: how long it may take, and whether a class's numbers can work at all.

    grace = drain.timeout + flush + CLI start + margin

`drain.timeout` is for running jobs to finish; `flush` for the last acknowledgements and releases; `CLI start` because
preStop starts a process inside the grace period; `margin` because clocks and kubelets are not exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from jobqueue_operator.resources.durations import render
from jobqueue_operator.resources.problems import Problem

if TYPE_CHECKING:
    from jobqueue_operator.resources.job_class import ClassSpec

HEARTBEATS_PER_LEASE = 3
"""Two renewals may be lost before a lease is."""
HEARTBEAT_MOST = timedelta(seconds=5)
"""The heartbeat of a long lease, when the manifest does not say; a quarter of a shorter one."""
HEARTBEAT_SHARE = 4
AFTER_TIMEOUT = timedelta(seconds=5)
"""Drain time beyond the class's timeout, when the manifest does not say."""
FLUSH = timedelta(seconds=5)
CLI_START = timedelta(seconds=3)
"""Start of `jobqueue drain` in a cold container on a busy node."""
MARGIN = timedelta(seconds=5)


class Condition(StrEnum):
    """Stable reasons of what is allowed and worth saying."""

    DRAIN_SHORTER_THAN_TIMEOUT = "DrainShorterThanTimeout"
    DURATION_ABOVE_TIMEOUT = "DurationAboveTimeout"
    HEARTBEAT_GAPS = "HeartbeatGaps"


@dataclass(frozen=True, slots=True)
class Warning_:  # noqa: N801 - the built-in has the name
    """Something allowed and worth saying, as a condition of the JobQueue."""

    condition: Condition
    message: str


@dataclass(frozen=True, slots=True)
class Ending:
    """How one class's workers end."""

    drain_timeout: timedelta
    flush: timedelta = FLUSH
    cli_start: timedelta = CLI_START
    margin: timedelta = MARGIN

    @property
    def grace(self) -> timedelta:
        """Time from the first step to SIGKILL, in whole seconds as a kubelet takes it, rounded up."""
        exact = self.drain_timeout + self.flush + self.cli_start + self.margin
        return timedelta(seconds=math.ceil(exact.total_seconds()))

    @property
    def sum(self) -> str:
        """The sum as text, for messages and `explain`."""
        return (
            f"drain.timeout {render(self.drain_timeout)} + flush {render(self.flush)} + "
            f"CLI start {render(self.cli_start)} + margin {render(self.margin)} = {render(self.grace)}"
        )


def ending(spec: ClassSpec) -> Ending:
    """Return how this class's workers end."""
    stated = spec.drain.timeout
    return Ending(drain_timeout=spec.timeout + AFTER_TIMEOUT if stated is None else stated)


def heartbeat(spec: ClassSpec) -> timedelta:
    """Return the time between two renewals of this class's leases."""
    if spec.lease.heartbeat is not None:
        return spec.lease.heartbeat
    return min(HEARTBEAT_MOST, spec.lease.duration // HEARTBEAT_SHARE)


def problems(spec: ClassSpec) -> list[Problem]:
    """Return what cannot work in this class's numbers; paths are relative to the class."""
    found = []
    beat = heartbeat(spec)
    if spec.lease.duration < HEARTBEATS_PER_LEASE * beat:
        found.append(
            Problem(
                "lease.duration",
                f"{render(spec.lease.duration)} is shorter than {HEARTBEATS_PER_LEASE} heartbeats "
                f"({HEARTBEATS_PER_LEASE} x {render(beat)} = {render(HEARTBEATS_PER_LEASE * beat)}); "
                "lengthen lease.duration or shorten lease.heartbeat",
            )
        )
    end = ending(spec)
    if end.grace > spec.drain.max_grace:
        room = spec.drain.max_grace - (end.grace - end.drain_timeout)
        shorter = f"state drain.timeout of at most {render(room)} or " if room >= timedelta(0) else ""
        found.append(
            Problem(
                "drain.timeout",
                f"the grace period ({end.sum}) is above drain.maxGrace {render(spec.drain.max_grace)}; "
                f"{shorter}raise drain.maxGrace",
            )
        )
    return found


def warnings(
    spec: ClassSpec, *, observed_p999: timedelta | None = None, heartbeat_gap: timedelta | None = None
) -> list[Warning_]:
    """Return what is allowed and worth saying, given what was observed (None: nothing was)."""
    found = []
    end = ending(spec)
    if end.drain_timeout < spec.timeout:
        found.append(
            Warning_(
                Condition.DRAIN_SHORTER_THAN_TIMEOUT,
                f"class {spec.name}: drain.timeout {render(end.drain_timeout)} is shorter than timeout "
                f"{render(spec.timeout)}: jobs that run longer are given back at a rollout and start again",
            )
        )
    if observed_p999 is not None and observed_p999 > spec.timeout:
        found.append(
            Warning_(
                Condition.DURATION_ABOVE_TIMEOUT,
                f"class {spec.name}: 1 job in 1,000 takes {render(observed_p999)}, above timeout "
                f"{render(spec.timeout)}; raise timeout or make the jobs smaller",
            )
        )
    if heartbeat_gap is not None and heartbeat_gap > spec.lease.duration / 2:
        found.append(
            Warning_(
                Condition.HEARTBEAT_GAPS,
                f"class {spec.name}: renewals came {render(heartbeat_gap)} apart, above half of lease.duration "
                f"{render(spec.lease.duration)}; lengthen the lease or give the workers more CPU",
            )
        )
    return found
