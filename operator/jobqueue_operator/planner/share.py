"""Dividing units between claims on them: minimums first, then tier by tier, by weight and by how late each is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LATENESS_MOST = 8.0
"""A class that is further beyond its target than this weighs no more for it."""
EXACT = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """Who asks for units, in whole workers of `charge` units each."""

    key: str
    charge: int
    wanted: int
    """Workers."""
    minimum: int = 0
    """Workers that are reserved, wanted or not."""
    weight: float = 1.0
    priority: int = 0
    """Higher tiers are served first."""
    lateness: float = 0.0
    """Oldest message age over target."""

    @property
    def pull(self) -> float:
        """Its weight within the tier."""
        return self.weight * min(max(self.lateness, 1.0), LATENESS_MOST)


def divide(units: int, claimants: Iterable[Claimant]) -> dict[str, int]:
    """Return how many workers each gets. Independent of the order of the claimants.

    1. Every minimum, higher tiers first where they do not all fit.
    2. Tier by tier, x = max(minimum, min(wanted, theta * pull)), with the theta that uses up what is left: weighted
       max-min fairness by water-filling.
    3. Whole workers, rounded down; what is left over goes to the latest that wants one more and for which it is enough.
    """
    ranked = sorted(claimants, key=lambda c: (-c.priority, c.key))
    got: dict[str, int] = {}
    left = units
    for claimant in ranked:
        got[claimant.key] = min(claimant.minimum, left // claimant.charge)
        left -= got[claimant.key] * claimant.charge
    for _, group in groupby(ranked, key=lambda c: c.priority):
        tier = list(group)
        before = sum(got[c.key] * c.charge for c in tier)
        shares = fill(left + before, tier, got)
        for claimant in tier:
            whole = math.floor(shares[claimant.key] / claimant.charge + EXACT)
            got[claimant.key] = max(got[claimant.key], min(whole, claimant.wanted))
        left -= sum(got[c.key] * c.charge for c in tier) - before
        left = _hand_out(left, tier, got)
    return got


def fill(units: float, tier: Sequence[Claimant], least: Mapping[str, int]) -> dict[str, float]:
    """Return max(least, min(wanted, theta * pull)) for each, in units, with theta such that the sum is `units`.

    Or such that everybody has what is wanted, when that is less. Exact: theta is found on the line between two of the
    points at which somebody begins or ceases to get more.
    """
    low = {c.key: float(least[c.key] * c.charge) for c in tier}
    high = {c.key: max(low[c.key], float(c.wanted * c.charge)) for c in tier}

    def at(theta: float) -> float:
        return sum(min(max(theta * c.pull, low[c.key]), high[c.key]) for c in tier)

    points = sorted({low[c.key] / c.pull for c in tier} | {high[c.key] / c.pull for c in tier})
    under = 0.0
    over = points[-1] if points else 0.0
    for point in points:
        if at(point) <= units:
            under = point
        else:
            over = point
            break
    rise = at(over) - at(under)
    theta = under + (over - under) * (units - at(under)) / rise if rise > EXACT and at(over) > units else under
    if at(over) <= units:
        theta = over
    return {c.key: min(max(theta * c.pull, low[c.key]), high[c.key]) for c in tier}


def _hand_out(left: int, tier: Sequence[Claimant], got: dict[str, int]) -> int:
    """Give left-over units to the latest first, a worker each, in rounds; return what is still left."""
    line = sorted(tier, key=lambda c: (-c.lateness, c.key))
    while line := [c for c in line if got[c.key] < c.wanted and c.charge <= left]:
        for claimant in line:
            if claimant.charge <= left:
                got[claimant.key] += 1
                left -= claimant.charge
    return left
