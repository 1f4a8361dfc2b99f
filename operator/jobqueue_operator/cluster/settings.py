"""Every setting of the operator, with its unit and default; the chart and the command line fill these."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from jobqueue import environment


class OperatorSettings(BaseSettings):
    """What `jobqueue-operator` runs with. Each field is also the variable JOBQUEUE_OPERATOR_<FIELD>, in capitals."""

    model_config = SettingsConfigDict(
        env_prefix="JOBQUEUE_OPERATOR_", extra="forbid", frozen=True, env_ignore_empty=True
    )

    namespaces: Annotated[
        str, NoDecode, Field(description="Namespaces to look after, with commas between. Default: all of the cluster.")
    ] = ""
    kubeconfig: Path | None = Field(
        default=None, description="File that says where the API server is. Default: KUBECONFIG, else the pod's own."
    )
    standalone: bool = Field(default=False, description="Take no Lease: nobody else is, or will be, running.")
    lease_namespace: str = Field(default="default", description="Namespace of the Lease.")
    lease_name: str = Field(default="jobqueue-operator", description="Name of the Lease.")
    identity: str = Field(default_factory=socket.gethostname, description="Names this process in the Lease: its pod.")
    tick: Annotated[float, Field(ge=1, le=10)] = Field(default=5.0, description="Seconds between two decisions.")
    health_port: int = Field(
        default=8080, ge=0, le=65_535, description="Port of /live, /ready and /metrics. 0 takes a free one."
    )
    allow_hosts: Annotated[
        str,
        NoDecode,
        Field(
            description="Hosts of databases, with commas between, that may be loopback or link-local addresses. "
            "Default: none: whoever may write a JobQueue could aim the operator at what listens beside it."
        ),
    ] = ""
    network_policy: bool = Field(default=False, description="Make a NetworkPolicy for each class's workers.")
    migrate: bool = Field(
        default=False,
        description="Migrate a queue's schema with the operator's own login. Default: say that it is to be done.",
    )
    lost_pod_timeout: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=600.0,
        description="Seconds after the end of its grace for which a deleted pod on a lost node is still charged.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe line that is written."
    )
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="auto writes JSON unless standard error is a terminal."
    )

    @property
    def places(self) -> tuple[str | None, ...]:
        """The namespaces to look after; (None,) for all of the cluster."""
        return tuple(sorted(_listed(self.namespaces))) or (None,)

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """Hosts that are not judged, written as those of logins are."""
        return frozenset(host.lower().rstrip(".") for host in _listed(self.allow_hosts))


def _listed(text: str) -> set[str]:
    return {part.strip() for part in text.split(",") if part.strip()}


def load(**given: Any) -> OperatorSettings:
    """Read settings: `given` (None: not given) over the environment over the defaults.

    Raises ConfigurationError naming every wrong field.
    """
    return environment.read(OperatorSettings, given, what="operator")
