"""Manifests from files: YAML in, validated objects out, or every problem at once.

Models check each object; `planner.draining` checks its arithmetic; this module brings them together and checks what
objects of one file say about each other.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pydantic

from jobqueue.errors import ConfigurationError
from jobqueue_operator.planner import draining
from jobqueue_operator.resources import API_VERSION, ClassSpec, DownstreamCapacity, JobQueue
from jobqueue_operator.resources.documents import BYTES_MOST, DocumentError, read
from jobqueue_operator.resources.problems import Problem, from_validation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobqueue_operator.resources.job_class import Capacity

Manifest: TypeAlias = JobQueue | DownstreamCapacity
MODELS: dict[str, type[JobQueue | DownstreamCapacity]] = {
    "JobQueue": JobQueue,
    "DownstreamCapacity": DownstreamCapacity,
}
SHOWN = 50
"""Problems that an error's text lists; the rest is a count."""


class ManifestError(ConfigurationError):
    """A manifest is wrong. `problems` holds one line each: file, field path, reason, remedy."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        more = [f"… and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
        super().__init__("\n".join([*self.problems[:SHOWN], *more]))


def load_manifests(source: str | Path) -> list[Manifest]:
    """Read every object of a file (a Path) or of YAML text (a str).

    Raises ManifestError with all problems of all objects.
    """
    if isinstance(source, Path):
        return parse_manifests(_read_file(source), name=source.name)
    return parse_manifests(source)


def parse_manifests(text: str, *, name: str = "manifest") -> list[Manifest]:
    """Read every object of a YAML text; `name` begins each problem's line. Raises ManifestError."""
    try:
        documents = read(text)
    except DocumentError as error:
        raise ManifestError([f"{name}: {error}"]) from None
    if not documents:
        raise ManifestError([f"{name}: is empty; write a JobQueue (apiVersion: {API_VERSION}, kind: JobQueue)"])
    found: list[Manifest] = []
    lines: list[str] = []
    for position, document in enumerate(documents, start=1):
        manifest, problems = validate(document)
        where = f"{name}: " if len(documents) == 1 else f"{name}: {_title(document, position)}: "
        lines += [f"{where}{problem}" for problem in problems]
        if manifest is not None:
            found.append(manifest)
    if not lines:
        lines = [f"{name}: {problem}" for problem in _between(found)]
    if lines:
        raise ManifestError(lines)
    return found


def _read_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MOST + 1)
    except OSError as error:
        raise ManifestError([f"{path}: cannot be read: {error.strerror}"]) from None
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ManifestError([f"{path}: is not UTF-8 text; save it as UTF-8"]) from None


def _title(document: Any, position: int) -> str:
    if isinstance(document, dict):
        kind, metadata = document.get("kind"), document.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if isinstance(kind, str) and kind in MODELS and isinstance(name, str) and name.isprintable() and name:
            return f"{kind} {name[:63]}"
    return f"document {position}"


def validate(document: Any) -> tuple[Manifest | None, list[Problem]]:
    """Return an object as its model, None where it is none, and every problem with it."""
    if not isinstance(document, dict):
        return None, [Problem("", "is not an object; write apiVersion, kind, metadata and spec")]
    kind = document.get("kind")
    model = MODELS.get(kind) if isinstance(kind, str) else None
    if model is None:
        shown = f"{kind[:60]!r} is" if isinstance(kind, str) else "is missing or"
        return None, [Problem("kind", f"{shown} not a kind this reads; write one of {', '.join(MODELS)}")]
    try:
        manifest = model.model_validate(document)
    except pydantic.ValidationError as error:
        return None, [*from_validation(error, model), *_arithmetic(document)]
    return manifest, _arithmetic(document)


def _arithmetic(document: dict[str, Any]) -> list[Problem]:
    """Check each class that is valid by itself, so that one wrong field does not hide another class's sum."""
    spec = document.get("spec")
    classes = spec.get("classes") if isinstance(spec, dict) else None
    found = []
    for index, value in enumerate(classes if isinstance(classes, list) else ()):
        try:
            parsed = ClassSpec.model_validate(value)
        except pydantic.ValidationError:
            continue
        found += [Problem(f"spec.classes[{index}].{p.path}", p.message) for p in draining.problems(parsed)]
    return found


def _between(manifests: Sequence[Manifest]) -> list[Problem]:
    """Check what objects of one file say about each other."""
    found = []
    names = Counter((m.kind, m.metadata.namespace, m.metadata.name) for m in manifests)
    found += [
        Problem("metadata.name", f"{kind} {namespace}/{name} appears twice; keep one")
        for (kind, namespace, name), count in names.items()
        if count > 1
    ]
    downstreams = {(m.metadata.namespace, m.metadata.name): m for m in manifests if isinstance(m, DownstreamCapacity)}
    limits = {ref: m.spec.units - m.spec.reserve for ref, m in downstreams.items() if m.spec.units is not None}
    reserved: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for queue in (m for m in manifests if isinstance(m, JobQueue)):
        for spec in queue.spec.classes:
            if spec.capacity is not None:
                ref = (spec.capacity.ref.namespace or queue.metadata.namespace, spec.capacity.ref.name)
                if ref in downstreams:
                    found += allowed(queue, spec, spec.capacity, downstreams[ref])
                limit = limits.get(ref)
                one = spec.capacity.charge(1)
                if limit is not None and one > limit:
                    found.append(
                        Problem(
                            f"JobQueue {queue.metadata.name}: class {spec.name}",
                            f"one worker with one job takes unitsPerJob {spec.capacity.units_per_job} + unitsPerPod "
                            f"{spec.capacity.units_per_pod} = {one} units, above the {limit} of {ref[1]}; "
                            "lower them or raise units",
                        )
                    )
                else:
                    reserved.setdefault(ref, []).append((spec.name, reserve(spec, spec.capacity)))
    for ref, parts in reserved.items():
        total = sum(units for _, units in parts)
        if ref in limits and total > limits[ref]:
            text = " + ".join(f"{name} {units}" for name, units in parts if units)
            found.append(
                Problem(
                    f"DownstreamCapacity {ref[1]}: spec.units",
                    f"the classes reserve {text} = {total} units, above {limits[ref]}; "
                    "lower minUnits or replicas.min, or raise units",
                )
            )
    return found


def reserve(spec: ClassSpec, capacity: Capacity) -> int:
    """Return the units without which a class's minimum does not fit. Of the last worker, one slot must."""
    workers = spec.replicas.min
    kept = (workers - 1) * capacity.charge(spec.concurrency) + capacity.charge(1) if workers else 0
    return max(capacity.min_units, kept)


def allowed(queue: JobQueue, spec: ClassSpec, capacity: Capacity, downstream: DownstreamCapacity) -> Iterator[Problem]:
    """Hold a class to what the owner of a downstream in another namespace allows."""
    own, theirs = queue.metadata.namespace, downstream.metadata
    if own == theirs.namespace:
        return
    where = f"JobQueue {queue.metadata.name}: class {spec.name}: capacity"
    entry = next((a for a in downstream.spec.allow if a.namespace == own), None)
    if entry is None:
        yield Problem(
            f"{where}.ref",
            f"DownstreamCapacity {theirs.namespace}/{theirs.name} does not allow namespace {own}; "
            "its owner can add it to spec.allow",
        )
        return
    bounds = (
        ("minUnits", capacity.min_units, entry.min_units),
        ("weight", capacity.weight, entry.weight),
        ("priority", capacity.priority, entry.max_priority),
    )
    one = capacity.charge(spec.concurrency)
    if entry.max_units is not None and one > entry.max_units:
        yield Problem(
            where,
            f"one worker takes unitsPerJob {capacity.units_per_job} x concurrency {spec.concurrency} + unitsPerPod "
            f"{capacity.units_per_pod} = {one} units, above the {entry.max_units} that "
            f"{theirs.namespace}/{theirs.name} allows namespace {own}; lower concurrency or the units",
        )
    for name, asked, most in bounds:
        if asked > most:
            yield Problem(
                f"{where}.{name}",
                f"{asked} is above the {most} that {theirs.namespace}/{theirs.name} allows namespace {own}; lower it",
            )
