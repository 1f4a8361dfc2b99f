"""Secrets by `get` alone, remembered for a minute; a Secret that cannot be read says why and what to do."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobqueue_operator.cluster.login import LoginRefused
from jobqueue_operator.platforms.kubernetes.api import SECRETS, ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jobqueue_operator.cluster.store import Key
    from jobqueue_operator.platforms.kubernetes.api import Api

KEPT = 60.0
"""Seconds that what was read is used for."""
KEPT_REFUSAL = 5.0
"""Seconds after which one that could not be read is tried again."""
_FORBIDDEN = 403


@dataclass(frozen=True, slots=True)
class _Kept:
    until: float
    data: Mapping[str, str] | None
    refusal: str = ""


class Secrets:
    """Reads Secrets. Where the API server gives no verdict, what was read last holds on."""

    def __init__(self, api: Api, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._kept: dict[Key, _Kept] = {}

    async def read(self, namespace: str, name: str) -> Mapping[str, str]:
        """Return a Secret's data, each value in base64. Raises LoginRefused."""
        key, now = (namespace, name), self._clock()
        kept = self._kept.get(key)
        if kept is None or kept.until <= now:
            kept = self._kept[key] = await self._ask(namespace, name, kept, now)
        if kept.data is None:
            raise LoginRefused(kept.refusal)
        return kept.data

    def forget(self, keep: set[Key]) -> None:
        """Forget all but these."""
        for key in self._kept.keys() - keep:
            del self._kept[key]

    async def _ask(self, namespace: str, name: str, before: _Kept | None, now: float) -> _Kept:
        try:
            found = await self._api.get(SECRETS, namespace, name)
        except ApiError as error:
            if error.status == _FORBIDDEN:
                remedy = (
                    f"let the operator get Secrets in namespace {namespace}: add it to the chart's secrets.namespaces"
                )
                return _Kept(now + KEPT_REFUSAL, None, f"Secret {name}: may not be read; {remedy}")
            # It may be overloaded, or not be there.
            data = before.data if before is not None else None
            return _Kept(now + KEPT_REFUSAL, data, f"Secret {name}: {error}")
        if found is None:
            return _Kept(now + KEPT_REFUSAL, None, f"Secret {name}: does not exist in namespace {namespace}; create it")
        return _Kept(now + KEPT, found.get("data") or {})
