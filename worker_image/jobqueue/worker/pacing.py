"""How often to do what costs the database more the more dead rows it holds: sweeps, and claims without a floor."""

from __future__ import annotations

SHORTEST = 1.0  # seconds
SHARE = 20  # times what the last one took: it gets a twentieth of the time
# What was measured here may be a freeze of this process or a lost connection, not the database's work. Without this
# bound one pause of a minute would put the next sweep off by twenty.
LONGEST = 10.0  # seconds


def interval(took: float) -> float:
    """Return the seconds until the next one, when the last one took `took` seconds by this machine's clock."""
    return min(max(SHORTEST, SHARE * took), LONGEST)
