"""Names and labels of a JobQueue's objects."""

from __future__ import annotations

import hashlib

NAME_LENGTH = 52
"""Characters of a Deployment's name: a ReplicaSet adds 11, and 63 are what a label holds."""
HASH_LENGTH = 5

NAME_LABEL = "app.kubernetes.io/name"
INSTANCE_LABEL = "app.kubernetes.io/instance"
COMPONENT_LABEL = "app.kubernetes.io/component"
MANAGER_LABEL = "app.kubernetes.io/managed-by"
QUEUE_LABEL = "jobqueue.dev/queue"
CLASS_LABEL = "jobqueue.dev/class"
REVISION = "jobqueue.dev/revision"
"""Pod label and pod template annotation: what the template is made from, as a hash."""
MANAGER = "jobqueue-operator"
"""Value of the label by which the operator's own objects are known, and its field manager."""
RESTART = "restart.jobqueue.dev/"
"""Prefix of a JobQueue's annotations that ask for new workers of a class, each with the time of asking."""
RESTARTED_AT = "jobqueue.dev/restarted-at"
"""Pod template annotation: when somebody asked for new pods."""


def object_name(queue_name: str, class_name: str) -> str:
    """Return `<queue>-<class>`; of a longer one 46 characters, `-` and 5 hex digits of the whole's SHA-256."""
    whole = f"{queue_name}-{class_name}"
    if len(whole) <= NAME_LENGTH:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:HASH_LENGTH]
    return f"{whole[: NAME_LENGTH - HASH_LENGTH - 1]}-{digest}"


def account_name(queue_name: str) -> str:
    """Return the name of the workers' ServiceAccount, cut like any other."""
    return object_name(queue_name, "worker")


def queue_labels(queue_name: str) -> dict[str, str]:
    """Return the labels of everything that belongs to a JobQueue."""
    return {
        NAME_LABEL: "jobqueue-worker",
        INSTANCE_LABEL: queue_name,
        COMPONENT_LABEL: "worker",
        MANAGER_LABEL: MANAGER,
        QUEUE_LABEL: queue_name,
    }


def class_labels(queue_name: str, class_name: str) -> dict[str, str]:
    """Return the labels of everything that belongs to a class, its pods included."""
    return {**queue_labels(queue_name), CLASS_LABEL: class_name}


def selector(queue_name: str, class_name: str) -> dict[str, str]:
    """Return the labels that select a class's pods; a Deployment's can never be changed."""
    return {QUEUE_LABEL: queue_name, CLASS_LABEL: class_name}
