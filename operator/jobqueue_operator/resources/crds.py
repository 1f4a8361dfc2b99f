"""The CustomResourceDefinitions: the models' schemas, and what only a cluster adds to them.

Of the spec only `database.schema` is immutable. The jobs are in it: under another name the operator would find an empty
queue and leave them behind. Secrets may change, since a login is often rotated by a new name, and so may a class's
`capacity.ref`: running jobs are charged to the new downstream at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from jobqueue_operator.planner import draining
from jobqueue_operator.resources import cel
from jobqueue_operator.resources.downstream import DownstreamSpec
from jobqueue_operator.resources.durations import render, well_formed
from jobqueue_operator.resources.job_queue import JobQueueSpec
from jobqueue_operator.resources.model import API_VERSION
from jobqueue_operator.resources.names import LABEL_LENGTH, LABEL_PATTERN
from jobqueue_operator.resources.schema import Schema, structural
from jobqueue_operator.resources.status import DownstreamStatus, JobQueueStatus

if TYPE_CHECKING:
    from collections.abc import Sequence


GROUP, VERSION = API_VERSION.split("/")
CATEGORY = "jobqueues"


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of `kubectl get`. `priority` 1 is for `-o wide`."""

    name: str
    type: str
    json_path: str
    description: str
    priority: int = 0

    def document(self) -> dict[str, Any]:
        """As a CustomResourceDefinition writes it."""
        return {
            "name": self.name,
            "type": self.type,
            "jsonPath": self.json_path,
            "description": self.description,
            "priority": self.priority,
        }


def _condition(name: str, description: str) -> _Column:
    return _Column(name, "string", f'.status.conditions[?(@.type=="{name}")].status', description)


_AGE = _Column("Age", "date", ".metadata.creationTimestamp", "Since it was made.")


def job_queues() -> dict[str, Any]:
    """Return the CustomResourceDefinition of JobQueues."""
    spec = structural(JobQueueSpec)
    spec["required"] = ["app", "classes", "database", "image"]  # on one machine there is neither Secret nor image
    fields = spec["properties"]
    fields["classes"]["items"][cel.KEY] += [_lease().document(), _grace().document()]
    fields["database"]["properties"]["schema"][cel.KEY].append(
        cel.Rule(
            "self == oldSelf",
            "is immutable, because the jobs are in it; put it back, and make another JobQueue for the other schema",
        ).document()
    )
    columns = (
        _condition("Ready", "Whether all is as asked."),
        _Column("Oldest", "string", ".status.oldestMessageAge", "Age of the oldest message that is due."),
        _Column("Ready Jobs", "integer", ".status.readyJobs", "Jobs that are due and wait."),
        _Column("In Flight", "integer", ".status.inFlightJobs", "Jobs that run."),
        _Column("Dead", "integer", ".status.deadJobs", "Jobs that were given up."),
        _Column("Replicas", "integer", ".status.replicas", "Workers that run."),
        _Column("Reason", "string", ".status.reason", "What decides the number of workers of the class worst off."),
        _AGE,
    )
    return _definition(_Kind("JobQueue", "jobqueues", "jq", columns), spec, structural(JobQueueStatus))


def downstream_capacities() -> dict[str, Any]:
    """Return the CustomResourceDefinition of DownstreamCapacities."""
    columns = (
        _condition("Ready", "Whether its limit is known and held."),
        _Column("Units", "integer", ".status.units", "Units it has, less reserve."),
        _Column("Limit", "integer", ".status.limit", "Units that may be in use now."),
        _Column("In Use", "integer", ".status.inUse", "Units in use."),
        _condition("Saturated", "Whether it shows that it is at its limit."),
        _AGE,
    )
    kind = _Kind("DownstreamCapacity", "downstreamcapacities", "dsc", columns)
    return _definition(kind, structural(DownstreamSpec), structural(DownstreamStatus))


def _lease() -> cel.Rule:
    """Return the first sum of `planner.draining`. A heartbeat that is not stated is short enough."""
    beat, lease = "self.lease.heartbeat", "self.lease.duration"
    beats = " + ".join(["beat"] * draining.HEARTBEATS_PER_LEASE)
    return cel.Rule(
        f"!has({beat}) || !({well_formed(beat)} && {well_formed(lease)}) || "
        f"[{cel.parsed(beat)}].all(beat, {beats} <= {cel.parsed(lease)})",
        f"lease.duration is shorter than {draining.HEARTBEATS_PER_LEASE} x lease.heartbeat; "
        "lengthen lease.duration or shorten lease.heartbeat",
        "lease.duration",
    )


def _grace() -> cel.Rule:
    """Return the second sum of `planner.draining`, in whole seconds rounded up."""
    stated, timeout, most = "self.drain.timeout", "self.timeout", "self.drain.maxGrace"
    after = draining.FLUSH + draining.CLI_START + draining.MARGIN
    rounding = timedelta(milliseconds=999)
    by_default = f"{cel.parsed(timeout)} + {cel.span(draining.AFTER_TIMEOUT)}"
    return cel.Rule(
        f"!({well_formed(timeout)} && {well_formed(most)} && (!has({stated}) || {well_formed(stated)})) || "
        f"((has({stated}) ? {cel.parsed(stated)} : {by_default}) + {cel.span(after + rounding)}).getSeconds()"
        f" <= {cel.parsed(most)}.getSeconds()",
        f"drain.timeout (timeout + {render(draining.AFTER_TIMEOUT)} by default) + flush {render(draining.FLUSH)} + CLI "
        f"start {render(draining.CLI_START)} + margin {render(draining.MARGIN)} is above drain.maxGrace; "
        "state a shorter drain.timeout or raise drain.maxGrace",
        "drain.timeout",
    )


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    plural: str
    short: str
    columns: Sequence[_Column]


def _definition(kind: _Kind, spec: Schema, status: Schema) -> dict[str, Any]:
    name = cel.Rule(
        f"self.metadata.name.size() <= {LABEL_LENGTH} && self.metadata.name.matches({cel.quoted(LABEL_PATTERN)})",
        f"metadata.name is no DNS label, which labels need; use at most {LABEL_LENGTH} lower-case letters, "
        "digits and '-', e.g. shop-2",
    )
    schema = {
        "type": "object",
        "description": f"{kind.name} of {API_VERSION}.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
        **cel.rules(name),
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [column.document() for column in kind.columns],
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": [kind.short],
                "categories": [CATEGORY],
            },
            "scope": "Namespaced",
            "versions": [version],
        },
    }
