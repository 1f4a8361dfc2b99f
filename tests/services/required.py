"""Services a machine may lack: tests without them skip visibly, unless JOBQUEUE_REQUIRE names them."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(service: str, reason: str) -> NoReturn:
    """Skip, visibly; or fail when JOBQUEUE_REQUIRE (names, comma or space between them) has the service."""
    if service in os.environ.get("JOBQUEUE_REQUIRE", "").replace(",", " ").split():
        pytest.fail(f"JOBQUEUE_REQUIRE names {service}: {reason}")
    pytest.skip(f"{service}: {reason}")
