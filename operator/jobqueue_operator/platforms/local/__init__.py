"""Workers as processes on this machine, ended the way a kubelet ends pods."""

from jobqueue_operator.platforms.local.platform import LocalPlatform
from jobqueue_operator.platforms.local.template import Template

__all__ = ["LocalPlatform", "Template"]
