"""The options that every command shares."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the JobQueue.", show_default=False)]
Classes = Annotated[
    list[str] | None, typer.Argument(metavar="CLASS", help="These classes; all unless said.", show_default=False)
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", metavar="NAME", help="Of the JobQueue; that of the context unless said."),
]
Context = Annotated[str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig.")]
Kubeconfig = Annotated[
    Path | None, typer.Option("--kubeconfig", metavar="FILE", help="Instead of KUBECONFIG or ~/.kube/config.")
]
Output = Annotated[Literal["text", "json"], typer.Option("--output", "-o", help="How to answer.")]
SecretName = Annotated[
    str | None,
    typer.Option("--secret", metavar="NAME", help="Secret with a login of the queue; NAME-queue-support unless said."),
]
Host = Annotated[
    str | None,
    typer.Option("--host", metavar="HOST", help="Reach the database here, such as 127.0.0.1 with port-forward."),
]
Port = Annotated[
    int | None, typer.Option("--port", min=1, max=65_535, metavar="PORT", help="Reach the database at this port.")
]


@dataclass(frozen=True, slots=True)
class Aim:
    """Which cluster and namespace are meant, as far as it was said."""

    namespace: str | None
    context: str | None
    kubeconfig: Path | None


@dataclass(frozen=True, slots=True)
class Detour:
    """Where to reach the database instead of where its Secret says; None: as it says."""

    host: str | None
    port: int | None
