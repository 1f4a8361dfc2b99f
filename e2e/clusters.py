"""The cluster that the scenarios run in: somebody's, by a kubeconfig, or one of kind's, made for them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from services import waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

T = TypeVar("T")

_PAUSE = 0.5
_COMMAND = 180.0
"""Seconds that one command may take."""


def run(*command: str, stdin: str | None = None, check: bool = True, within: float = _COMMAND) -> str:
    """Run a command and return what it wrote to standard output. AssertionError with all it wrote when it fails."""
    ran = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=within)
    if check and ran.returncode != 0:
        raise AssertionError(f"{' '.join(command)} ended with {ran.returncode}: {ran.stdout}{ran.stderr}")
    return ran.stdout


def eventually(condition: Callable[[], T | None], *, within: float, what: str) -> T:
    """Call `condition` until it returns something true, and return that; AssertionError after `within` seconds."""
    return waiting.eventually(condition, within=within, what=what, every=_PAUSE)


@dataclass(frozen=True)
class Kubectl:
    """kubectl for one cluster, and one namespace of it."""

    kubeconfig: Path
    namespace: str = "default"

    def __call__(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Run it; return what it wrote."""
        options = ("--kubeconfig", str(self.kubeconfig), "--namespace", self.namespace)
        return run("kubectl", *options, *arguments, stdin=stdin, check=check)

    def get(self, *arguments: str) -> Any:
        """Return an object or a list; None when there is none."""
        found = self("get", *arguments, "--ignore-not-found", "--output=json")
        return json.loads(found) if found.strip() else None

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        """Return the objects of a list."""
        found: list[dict[str, Any]] = (self.get(*arguments) or {}).get("items", [])
        return found

    def apply(self, *documents: Mapping[str, Any]) -> None:
        """Apply manifests."""
        self("apply", "--filename=-", stdin=yaml.safe_dump_all(documents))


@dataclass(frozen=True)
class Kind:
    """A cluster that the program `kind` makes on this machine, and takes away again."""

    name: str
    kubeconfig: Path
    program: str = "kind"

    def create(self) -> None:
        """Make it and wait until its node is ready."""
        options = ("--name", self.name, "--kubeconfig", str(self.kubeconfig), "--wait", "180s")
        run(self.program, "create", "cluster", *options, within=600)

    def load(self, archive: Path) -> None:
        """Bring the images of an archive to its node."""
        run(self.program, "load", "image-archive", str(archive), "--name", self.name, within=600)

    def delete(self) -> None:
        """Take it away."""
        run(self.program, "delete", "cluster", "--name", self.name, "--kubeconfig", str(self.kubeconfig))
