"""How many units a downstream has for jobs: what its manifest states, or what its server grants, less the reserve."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobqueue_operator.planner.wanted import CapacitySpec


def ceiling(capacity: CapacitySpec, connections: Mapping[str, int]) -> int | None:
    """Return the units that jobs may have at most, or None while the server's grant is not known.

    `connections` says, by database, how many connections its server grants to ordinary users.
    """
    spec = capacity.spec
    stated = spec.units if spec.units is not None else min(connections.values(), default=None)
    return max(stated - spec.reserve, 0) if stated is not None else None
