"""The manifests of API group jobqueue.dev as models: what may be written, within which bounds.

These are edges: a manifest comes in as YAML or from an API server and leaves as frozen, validated values. The planner
reads them; nothing in here does I/O.
"""

from jobqueue_operator.resources.downstream import Allowance, DownstreamCapacity, DownstreamSpec
from jobqueue_operator.resources.job_class import ClassSpec
from jobqueue_operator.resources.job_queue import JobQueue, JobQueueSpec
from jobqueue_operator.resources.model import API_VERSION

__all__ = [
    "API_VERSION",
    "Allowance",
    "ClassSpec",
    "DownstreamCapacity",
    "DownstreamSpec",
    "JobQueue",
    "JobQueueSpec",
]
