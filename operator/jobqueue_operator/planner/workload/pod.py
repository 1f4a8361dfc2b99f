"""The pod template of a class before the user's is merged over it: the worker as the kubelet runs it.

The environment is the one that `jobqueue up` gives its workers. Secrets are files, so that a rotated password needs no
restart and shows in no pod's description.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobqueue_operator.planner import draining
from jobqueue_operator.planner.workload import names

if TYPE_CHECKING:
    from jobqueue_operator.resources import ClassSpec, JobQueue

CONTAINER = "worker"
USER = 65532
"""User and group of the worker: numeric, as the kubelet can tell only of a number that it is not root."""
HEALTH_PORT = 8080
HEALTH = "health"
"""Name of that port."""

DATABASE = "/etc/jobqueue/database"
LISTEN = "/etc/jobqueue/listen"
BROKER = "/etc/jobqueue/broker"
RUN = "/run/jobqueue"
TMP = "/tmp"  # noqa: S108 - the pod's own

LOGIN_KEYS = ("host", "port", "dbname", "user", "password", "sslmode", "sslrootcert")
"""Keys of a Secret with a database's login; whatever else it holds does not reach the pod."""
BROKER_KEY = "url"
READ_BY_GROUP = 0o440

REQUESTS = {"cpu": "50m", "memory": "128Mi"}
"""Of an idle worker with a small app; no limits, as a CPU limit would stretch every job and every heartbeat."""
TMP_MOST = "1Gi"
RUN_MOST = "1Mi"


def template(queue: JobQueue, spec: ClassSpec) -> dict[str, Any]:
    """Return the pod template, without the marks of a revision and of a restart."""
    queue_name = queue.metadata.name
    return {
        "metadata": {
            "labels": names.class_labels(queue_name, spec.name),
            "annotations": {"kubectl.kubernetes.io/default-container": CONTAINER},
        },
        "spec": {
            "serviceAccountName": names.account_name(queue_name),
            "automountServiceAccountToken": False,
            # A Service named `jobqueue` would set JOBQUEUE_PORT and the like.
            "enableServiceLinks": False,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": grace(spec),
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "topologySpreadConstraints": [
                _spread(key, names.selector(queue_name, spec.name))
                for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
            ],
            "containers": [_worker(queue, spec)],
            "volumes": _volumes(queue),
        },
    }


def grace(spec: ClassSpec) -> int:
    """Return the seconds from a pod's deletion to SIGKILL; preStop is inside."""
    return int(draining.ending(spec).grace.total_seconds())


def _worker(queue: JobQueue, spec: ClassSpec) -> dict[str, Any]:
    image = {} if queue.spec.image is None else {"image": queue.spec.image}
    return {
        "name": CONTAINER,
        **image,
        # Of the image's entrypoint, `jobqueue`.
        "args": ["worker", "--app", queue.spec.app, "--class", spec.name],
        "env": _environment(queue, spec),
        "ports": [{"name": HEALTH, "containerPort": HEALTH_PORT, "protocol": "TCP"}],
        "resources": {"requests": dict(REQUESTS)},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": _mounts(queue),
        "lifecycle": {"preStop": {"exec": {"command": ["jobqueue", "drain"]}}},
        # A cold node may take long to start it: no other probe runs before this one has succeeded.
        "startupProbe": _probe("/live", period=1, timeout=5, failures=120),
        # The supervisor's loop turns, whatever the database does. /progress is no probe: it is false when a job has
        # outrun its time, and the supervisor ends that one itself; a restart would take the others with it.
        "livenessProbe": _probe("/live", period=10, timeout=5, failures=6),
        # Scaling in waits until a retired worker is seen as not ready.
        "readinessProbe": _probe("/ready", period=2, timeout=5, failures=1),
        # The last line of a worker that cannot start says why.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _environment(queue: JobQueue, spec: ClassSpec) -> list[dict[str, Any]]:
    wakeup = queue.spec.wakeup
    schema = "jobqueue" if queue.spec.database is None else queue.spec.database.schema_
    values = {
        "JOBQUEUE_DSN_DIR": DATABASE,
        "JOBQUEUE_SCHEMA": schema,
        "JOBQUEUE_CONCURRENCY": str(spec.concurrency),
        "JOBQUEUE_DRAIN_TIMEOUT": f"{draining.ending(spec).drain_timeout.total_seconds():g}",
        "JOBQUEUE_DRAIN_SOCKET": f"{RUN}/drain.sock",
        "JOBQUEUE_HEALTH_PORT": str(HEALTH_PORT),
        "JOBQUEUE_QUEUE": queue.metadata.name,
        "JOBQUEUE_LOG_FORMAT": "json",
        "JOBQUEUE_POLL_INTERVAL": f"{wakeup.poll_interval.total_seconds():g}",
        "JOBQUEUE_WAKEUP": wakeup.type.lower(),
        "PYTHONUNBUFFERED": "1",
    }
    if spec.lease.heartbeat is not None:
        values["JOBQUEUE_HEARTBEAT"] = f"{spec.lease.heartbeat.total_seconds():g}"
    if _listens(queue):
        values["JOBQUEUE_LISTEN_DSN_DIR"] = LISTEN
    if wakeup.rabbitmq is not None:
        values["JOBQUEUE_BROKER_URL"] = f"{BROKER}/{BROKER_KEY}"
    return [
        _of_pod("JOBQUEUE_WORKER_NAME", "metadata.name"),
        _of_pod("JOBQUEUE_NAMESPACE", "metadata.namespace"),
        # Without a value: they would come before the files, and a podTemplate may take a producer's ConfigMap whole.
        {"name": "JOBQUEUE_DSN"},
        {"name": "JOBQUEUE_LISTEN_DSN"},
        *({"name": name, "value": value} for name, value in values.items()),
    ]


def _of_pod(name: str, field: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": field}}}


def _listens(queue: JobQueue) -> bool:
    database = queue.spec.database
    return queue.spec.wakeup.type == "Notify" and database is not None and database.listen_secret_ref is not None


def _mounts(queue: JobQueue) -> list[dict[str, Any]]:
    files = {"database": DATABASE}
    if _listens(queue):
        files["listen"] = LISTEN
    if queue.spec.wakeup.rabbitmq is not None:
        files["broker"] = BROKER
    return [
        *({"name": name, "mountPath": at, "readOnly": True} for name, at in files.items()),
        {"name": "run", "mountPath": RUN},
        {"name": "tmp", "mountPath": TMP},
    ]


def _volumes(queue: JobQueue) -> list[dict[str, Any]]:
    database, rabbitmq = queue.spec.database, queue.spec.wakeup.rabbitmq
    volumes = []
    if database is not None:
        volumes.append(_secret("database", database.worker_secret_ref.name, LOGIN_KEYS))
        if _listens(queue) and database.listen_secret_ref is not None:
            volumes.append(_secret("listen", database.listen_secret_ref.name, LOGIN_KEYS))
    if rabbitmq is not None:
        volumes.append(_secret("broker", rabbitmq.secret_ref.name, (BROKER_KEY,)))
    return [
        *volumes,
        # In memory: a node's full disk must not stand in the way of draining.
        {"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": RUN_MOST}},
        {"name": "tmp", "emptyDir": {"sizeLimit": TMP_MOST}},
    ]


def _secret(volume: str, secret: str, keys: tuple[str, ...]) -> dict[str, Any]:
    """Mount these keys and no others. A key that is added later appears without a restart, as does the Secret."""
    return {
        "name": volume,
        "secret": {
            "secretName": secret,
            "items": [{"key": key, "path": key} for key in keys],
            "defaultMode": READ_BY_GROUP,
            "optional": True,
        },
    }


def _probe(path: str, *, period: int, timeout: int, failures: int) -> dict[str, Any]:
    """Build a probe of the health port; `period` and `timeout` in seconds."""
    return {
        "httpGet": {"path": path, "port": HEALTH},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }


def _spread(key: str, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "topologyKey": key,
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels},
        # Pods of the old revision do not count: they are about to go.
        "matchLabelKeys": ["pod-template-hash"],
    }
