"""What one class of one JobQueue is made of in a cluster: plain objects, ready for server-side apply.

A Deployment, a PodDisruptionBudget and, when asked for, a NetworkPolicy per class; a ServiceAccount per JobQueue. The
same manifest makes the same objects to the last byte, in every release that does not say otherwise in its changelog:
a pod template that changes is a rollout.
"""

from jobqueue_operator.planner.workload.made import Made, objects, problems, scaled, service_account
from jobqueue_operator.planner.workload.names import object_name
from jobqueue_operator.planner.workload.rolling import Rolling, rolling

__all__ = ["Made", "Rolling", "object_name", "objects", "problems", "rolling", "scaled", "service_account"]
