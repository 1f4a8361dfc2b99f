"""Conditions of a status, and which of them are bad news. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

HOLDING = frozenset(
    {
        "ClassHasJobs",
        "RolloutStalled",
        "RolloutHeld",
        "HeadBlocked",
        "TargetBelowStartDelay",
        "DownstreamSaturated",
        "DrainShorterThanTimeout",
        "Conflicting",
        "MemoryRefused",
        "Saturated",
    }
)
"""Types of conditions that are bad news when True; of the others it is False that is."""
NO_NEWS = frozenset({"Progressing"})
"""Types of conditions that are no news, whatever they are."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a status."""

    type: str
    status: str
    reason: str
    message: str
    since: datetime | None

    @property
    def trouble(self) -> bool:
        """Whether it says that something is not as it should be."""
        if self.type in NO_NEWS:
            return False
        return self.status == "True" if self.type in HOLDING else self.status != "True"


def read(status: Mapping[str, Any]) -> tuple[Condition, ...]:
    """Return the conditions of an object's status."""
    return tuple(
        Condition(
            type=each.get("type") or "",
            status=each.get("status") or "",
            reason=each.get("reason") or "",
            message=each.get("message") or "",
            since=moment(each.get("lastTransitionTime")),
        )
        for each in status.get("conditions") or []
    )


def moment(text: str | None) -> datetime | None:
    """Read a time as an API server writes it; None where there is none that can be read."""
    try:
        found = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return found if found is None or found.tzinfo else found.replace(tzinfo=UTC)
