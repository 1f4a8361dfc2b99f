"""What a podTemplate may not change: what the operator finds its pods by, and what makes them end cleanly.

Each rule names a place of the template. The merged template must hold there what ours does; so it does not matter by
which way a podTemplate would have changed it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from jobqueue_operator.planner.workload import names, pod
from jobqueue_operator.resources.problems import Problem, path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jobqueue_operator.resources.problems import Location

Step: TypeAlias = str | tuple[str, str | int]
"""A field, or the entry of a list whose field has a value."""
Way: TypeAlias = tuple[Step, ...]

MARKS = frozenset({"pod-template-hash", "controller.kubernetes.io/pod-deletion-cost"})
"""Labels and annotations that pods get later, from a Deployment and from us."""
PREFIXES = ("jobqueue.dev/", names.RESTART)

_WORKER: Way = ("spec", "containers", ("name", pod.CONTAINER))
_SECRETS = "holds the Secret that spec.database or spec.wakeup names; take another name"

VARIABLES = {
    "JOBQUEUE_APP": "set spec.app",
    "JOBQUEUE_CLASS": "it is the class's name",
    "JOBQUEUE_DSN": "set spec.database.workerSecretRef",
    "JOBQUEUE_DSN_DIR": "set spec.database.workerSecretRef",
    "JOBQUEUE_LISTEN_DSN": "set spec.database.listenSecretRef",
    "JOBQUEUE_LISTEN_DSN_DIR": "set spec.database.listenSecretRef",
    "JOBQUEUE_SCHEMA": "set spec.database.schema",
    "JOBQUEUE_CONCURRENCY": "set the class's concurrency",
    "JOBQUEUE_DRAIN_TIMEOUT": "set the class's drain.timeout",
    "JOBQUEUE_DRAIN_SOCKET": "the preStop hook talks to this one",
    "JOBQUEUE_HEALTH_PORT": "the probes ask this one",
    "JOBQUEUE_WORKER_NAME": "it is the pod's name",
    "JOBQUEUE_NAMESPACE": "it is the pod's namespace",
    "JOBQUEUE_QUEUE": "it is the JobQueue's name",
    "JOBQUEUE_GENERATION": "new workers are told apart by their revision",
    "JOBQUEUE_HEARTBEAT": "set the class's lease.heartbeat",
    "JOBQUEUE_POLL_INTERVAL": "set spec.wakeup.pollInterval",
    "JOBQUEUE_WAKEUP": "set spec.wakeup.type",
    "JOBQUEUE_BROKER_URL": "set spec.wakeup.rabbitmq.secretRef",
}
"""Variables of the worker that the manifest's own fields fill, each with what to do instead."""

RULES: dict[Way, str] = {
    **{
        ("metadata", "labels", label): "is what the operator and its policies find the pods by; take another label"
        for label in names.class_labels("", "")
    },
    ("spec", "restartPolicy"): "is always Always in a Deployment; leave it out",
    ("spec", "terminationGracePeriodSeconds"): (
        "is computed from drain.timeout, so that a pod is not killed in the middle of its drain; set drain.timeout"
    ),
    ("spec", "activeDeadlineSeconds"): "is not for pods of a Deployment; the class's timeout bounds each job",
    ("spec", "ephemeralContainers"): "cannot stand in a template; use `kubectl debug`",
    (*_WORKER, "args"): "tell the worker its app and its class; set spec.app, and wrap the worker by `command`",
    (*_WORKER, "lifecycle", "preStop"): "drains the worker before it is stopped; leave it out",
    (*_WORKER, "lifecycle", "stopSignal"): "must be SIGTERM, which drains the worker; leave it out",
    (*_WORKER, "ports", ("containerPort", pod.HEALTH_PORT)): "is the worker's health port; take another one",
    **{
        (*_WORKER, "readinessProbe", kind): "asks the worker's /ready, which tells the operator whom it can stop; "
        "change its times alone"
        for kind in ("httpGet", "exec", "tcpSocket", "grpc")
    },
    **{
        (*_WORKER, "volumeMounts", ("mountPath", at)): "is where the worker has its own files; mount yours elsewhere"
        for at in (pod.DATABASE, pod.LISTEN, pod.BROKER, pod.RUN)
    },
    **{("spec", "volumes", ("name", name)): _SECRETS for name in ("database", "listen", "broker")},
    ("spec", "volumes", ("name", "run")): "holds the socket that preStop talks to; take another name",
    **{
        (*_WORKER, "env", ("name", name)): f"is filled from the manifest; {remedy}"
        for name, remedy in VARIABLES.items()
    },
}


def problems(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], merged: Mapping[str, Any], at: Location
) -> list[Problem]:
    """Return what `theirs`, a podTemplate of good form that stands at `at`, changes and may not."""
    found = []
    seen = set()
    for way, message in RULES.items():
        if look(merged, way) != look(ours, way):
            where, value = _reach(theirs, way)
            # Of what was deleted as a whole, one word is enough.
            if where not in seen:
                said = "null would delete what the worker needs; leave it out" if value is None else message
                found.append(Problem(path((*at, *where)), said))
            seen.add(where)
    return found + [each for each in _marks(theirs, at) if each.path not in {other.path for other in found}]


def look(template: Any, way: Way) -> Any:
    """Return what stands at `way`, None when nothing does."""
    for step in way:
        if isinstance(step, str):
            template = template.get(step) if isinstance(template, dict) else None
        else:
            template = _entry(template, *step)[1]
    return template


def _entry(value: Any, key: str, wanted: str | int) -> tuple[int, Any]:
    for position, entry in enumerate(value if isinstance(value, list) else ()):
        if isinstance(entry, dict) and entry.get(key) == wanted:
            return position, entry
    return -1, None


def _reach(theirs: Any, way: Way) -> tuple[Location, Any]:
    """Return how far a podTemplate goes along `way`, and what it has there."""
    where: tuple[str | int, ...] = ()
    for step in way:
        if isinstance(step, str):
            if not isinstance(theirs, dict) or step not in theirs:
                break
            where, theirs = (*where, step), theirs[step]
        else:
            position, entry = _entry(theirs, *step)
            if position < 0:
                break
            where, theirs = (*where, position), entry
    return where, theirs


def _marks(theirs: Mapping[str, Any], at: Location) -> Iterator[Problem]:
    for field in ("labels", "annotations"):
        for name in look(theirs, ("metadata", field)) or ():
            if name in MARKS or name.startswith(PREFIXES):
                yield Problem(path((*at, "metadata", field, name)), "is the operator's own mark; take another name")
