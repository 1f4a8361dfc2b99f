"""What one manifest file asks of one database: its classes and limits, checked against each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobqueue_operator.manifest import Manifest, ManifestError, load_manifests
from jobqueue_operator.registration import class_settings, downstream_name, first_limit, own_name
from jobqueue_operator.resources import ClassSpec, DownstreamCapacity, JobQueue

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Workload:
    """The objects of one manifest file."""

    queues: tuple[JobQueue, ...]
    downstreams: tuple[DownstreamCapacity, ...]

    @property
    def classes(self) -> list[ClassSpec]:
        """Every class of every JobQueue."""
        return [spec for queue in self.queues for spec in queue.spec.classes]


def load(path: Path) -> Workload:
    """Read a manifest for use on one database. Raises ManifestError with all problems."""
    return workload(load_manifests(path), name=path.name)


def workload(manifests: Sequence[Manifest], *, name: str) -> Workload:
    """Check what only matters where all objects share one database. Raises ManifestError."""
    queues = tuple(m for m in manifests if isinstance(m, JobQueue))
    downstreams = tuple(m for m in manifests if isinstance(m, DownstreamCapacity))
    problems = []
    if not queues:
        problems.append(f"{name}: holds no JobQueue; add one")
    owners: dict[str, str] = {}
    known = {own_name(d) for d in downstreams}
    elsewhere = {d.metadata.name: d.metadata.namespace for d in downstreams}
    for queue in queues:
        for index, spec in enumerate(queue.spec.classes):
            where = f"{name}: JobQueue {queue.metadata.name}: spec.classes[{index}]"
            owner = owners.setdefault(spec.name, queue.metadata.name)
            if owner != queue.metadata.name:
                problems.append(f"{where}.name: JobQueue {owner} has a class {spec.name} already; rename one")
            if spec.capacity is not None and downstream_name(queue, spec.capacity.ref) not in known:
                name = spec.capacity.ref.name
                remedy = (
                    f"it is in namespace {elsewhere[name]}: write ref.namespace"
                    if name in elsewhere
                    else "add one, or leave capacity out"
                )
                place = spec.capacity.ref.namespace or queue.metadata.namespace
                problems.append(
                    f"{where}.capacity.ref: there is no DownstreamCapacity {name} of namespace {place} in this file; "
                    f"{remedy}"
                )
    if problems:
        raise ManifestError(problems)
    return Workload(queues, downstreams)


def settings(path: Path, connections: int | None) -> tuple[dict[str, int], dict[str, dict[str, Any]]]:
    """Return what `set_downstream` and `set_class` are to be told: limits, and settings, by name.

    For commands that register a manifest without running it. `connections` is what the database's server grants to
    ordinary users. Raises ManifestError.
    """
    found = load(path)
    limits = {own_name(downstream): first_limit(downstream, connections) for downstream in found.downstreams}
    return limits, {spec.name: class_settings(queue, spec) for queue in found.queues for spec in queue.spec.classes}
