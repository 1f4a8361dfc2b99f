"""One downstream behind several databases: each enforces its own limit, and the sum must hold at every moment.

To move units, one database's limit is lowered first. What it has in flight above its new limit stays charged to it
until it has ended, and so does the whole of its old limit until an observation after the lowering says what is in
flight. Only then is another's limit raised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Held:
    """What a database's queue said: its limit, and the units in flight under it."""

    limit: int
    in_use: int


@dataclass(frozen=True, slots=True)
class Split:
    """What each database is told, by name."""

    limits: dict[str, int]
    charged: dict[str, int]
    """The most that each may have in flight until it is seen again."""


def step(limit: int, wanted: Mapping[str, int], seen: Mapping[str, Held | None], last: Split | None = None) -> Split:
    """Return the limit that each database's queue is to hold to from now on.

    `wanted` is what each could use, by database; what is left of `limit` is spread over all, so that no claim waits for
    units that nobody uses. `seen` is the last observation (None: that database could not be read), `last` what was
    returned before. A database that cannot be read keeps what it was told and is charged with what it may have; one
    that was never told anything is charged with everything.
    """
    last = last if last is not None else Split({}, {})
    names = sorted(wanted)
    if len(names) == 1 and seen.get(names[0]) is not None:
        return Split({names[0]: limit}, {names[0]: limit})
    goal = _goal(limit, {name: wanted[name] for name in names})
    limits: dict[str, int] = {}
    charged: dict[str, int] = {}
    for name in names:
        held = seen.get(name)
        if held is None:
            limits[name] = last.limits.get(name, 0)
            charged[name] = last.charged.get(name, limit)
        else:
            limits[name] = min(goal[name], held.limit)
            # Claims went on under the old limit until this is told: what was in flight says nothing yet.
            charged[name] = max(held.limit, held.in_use)
    for name in names:
        held = seen.get(name)
        if held is not None and goal[name] > held.limit:
            # In place of what it holds above its own limit, if anything.
            free = limit - sum(charged.values()) + charged[name] - held.limit
            limits[name] = held.limit + max(min(goal[name] - held.limit, free), 0)
            charged[name] = max(charged[name], limits[name])
    return Split(limits, charged)


def _goal(limit: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """Share the limit in proportion to what is wanted; equally where nobody wants anything. Sums to the limit."""
    total = sum(wanted.values())
    weights = wanted if total > 0 else dict.fromkeys(wanted, 1)
    total = sum(weights.values())
    goal = {name: limit * weight // total for name, weight in weights.items()}
    for name in sorted(goal, key=lambda n: (-(limit * weights[n] % total), n))[: limit - sum(goal.values())]:
        goal[name] += 1
    return goal
