"""Services a machine may lack: tests without them skip visibly, unless JOBQUEUE_REQUIRE names them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

_SYSTEM_PATH = "/usr/sbin:/usr/local/sbin:/sbin"
_CONTROL_PLANE = ("etcd", "kube-apiserver")
_POSTGRES_15 = Path("/usr/lib/postgresql/15/bin")


def missing(service: str, reason: str) -> NoReturn:
    """Skip, visibly; or fail when JOBQUEUE_REQUIRE (names, comma or space between them) has the service."""
    if is_required(service):
        pytest.fail(f"JOBQUEUE_REQUIRE names {service}: {reason}")
    pytest.skip(f"{service}: {reason}")


def is_required(service: str) -> bool:
    """Return whether JOBQUEUE_REQUIRE names it."""
    return service in os.environ.get("JOBQUEUE_REQUIRE", "").replace(",", " ").split()


def require(part: str) -> Path:
    """Return where `part` is (a program, or a folder of them); skip or fail the test when it is missing."""
    path = _find(part)
    if path is not None:
        return path
    missing(part, "not installed on this machine")


def _program(name: str) -> Path | None:
    found = shutil.which(name) or shutil.which(name, path=_SYSTEM_PATH)
    return Path(found) if found else None


def _find(part: str) -> Path | None:
    if part == "postgres15":
        return _POSTGRES_15 if (_POSTGRES_15 / "postgres").exists() else None
    if part == "kubernetes":
        # As envtest names and places them.
        folder = Path(os.environ.get("KUBEBUILDER_ASSETS", "/usr/local/kubebuilder/bin"))
        return folder if all((folder / program).exists() for program in _CONTROL_PLANE) else None
    return _program({"rabbitmq": "rabbitmq-server"}.get(part, part))
