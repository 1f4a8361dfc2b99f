"""The queue's stage, for tests that walk through it at random."""

from __future__ import annotations

from integration.queue.conftest import _shared, direct, own

__all__ = ["_shared", "direct", "own"]
