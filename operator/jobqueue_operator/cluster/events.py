"""Events on the objects of users: what changed, once, when it changes."""

from __future__ import annotations

import hashlib
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from jobqueue_operator.platforms.kubernetes.api import EVENTS, ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobqueue_operator.cluster.store import Known
    from jobqueue_operator.platforms.kubernetes.api import Api

log = logging.getLogger(__name__)

NOTE_MOST = 1_000
"""Characters of an event's text."""


class Events:
    """Writes events. One that cannot be written is dropped: it says nothing that the status does not say."""

    def __init__(self, api: Api, *, reporter: str) -> None:
        self._api = api
        self._reporter = reporter

    async def tell(
        self, about: Known, kind: str, type_: Literal["Normal", "Warning"], reason: str, action: str, note: str
    ) -> None:
        """Write one."""
        namespace, name = about.key
        now = datetime.now(UTC)
        stamp = hashlib.sha256(f"{about.uid}{reason}{note}{now.timestamp()}".encode()).hexdigest()[:16]
        manifest: Mapping[str, Any] = {
            "apiVersion": EVENTS.api_version,
            "kind": "Event",
            "metadata": {"name": f"{name[:200]}.{stamp}", "namespace": namespace},
            "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": type_,
            "reason": reason[:128],
            "action": action,
            "note": note[:NOTE_MOST],
            "reportingController": "jobqueue.dev/operator",
            "reportingInstance": self._reporter[:128],
            "regarding": {
                "apiVersion": "jobqueue.dev/v1alpha1",
                "kind": kind,
                "namespace": namespace,
                "name": name,
                "uid": about.uid,
            },
        }
        try:
            await self._api.create(EVENTS, manifest)
        except ApiError as error:
            log.debug("an event was not written: %s", error)


GOOD = frozenset({"Ready", "SpecAccepted", "DatabaseReady", "MetricsAvailable", "CapacityAvailable"})
"""Conditions that are good when they hold; of the others it is bad. `Progressing` is neither."""


Transition: TypeAlias = tuple[Literal["Normal", "Warning"], str, str]
"""Type, reason and note of an event."""


def transitions(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Transition]:
    """Return (type, reason, note) for each condition whose status changed. Pure.

    A condition's first appearance is told only when it is bad for certain.
    """
    old = {c["type"]: c["status"] for c in before.get("conditions") or ()}
    found: list[Transition] = []
    for condition in after.get("conditions") or ():
        type_, status = condition["type"], condition["status"]
        bad = type_ != "Progressing" and status != ("True" if type_ in GOOD else "False")
        if old.get(type_) == status or (type_ not in old and (not bad or status == "Unknown")):
            continue
        said = condition["message"] or f"{type_} is {status}"
        found.append(("Warning" if bad else "Normal", condition["reason"] if bad else f"{type_}{status}", said))
    return found
