"""The platform of a cluster: Deployments, whose pods are the workers."""

from jobqueue_operator.platforms.kubernetes.platform import KubernetesPlatform, Target

__all__ = ["KubernetesPlatform", "Target"]
