"""What was applied last, so that it is applied again when it differs or was changed by somebody, and not otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobqueue_operator.platforms.kubernetes.informer import version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from jobqueue_operator.platforms.kubernetes.api import Api, Kind, Object
    from jobqueue_operator.platforms.kubernetes.informer import Informers


@dataclass(frozen=True, slots=True)
class _Record:
    token: Hashable
    uid: str
    asked: int
    """What was asked for then, as a number that grows with it."""


class Applied:
    """Applies objects of one kind. `seen`: what is known of them by watch; None where they are not watched."""

    def __init__(self, api: Api, kind: Kind, seen: Informers | None) -> None:
        self._api = api
        self._kind = kind
        self._seen = seen
        self._records: dict[tuple[str, str], _Record] = {}

    async def have(
        self,
        namespace: str,
        name: str,
        token: Hashable,
        make: Callable[[], Mapping[str, Any]],
        *,
        put_back: bool = True,
    ) -> bool:
        """See to it that an object is as `make` says. Return whether somebody had changed it. Raises ApiError.

        `token` stands for what `make` returns: another one, another manifest. `put_back`: whether what somebody
        changed is undone.
        """
        record = self._records.get((namespace, name))
        observed = self._seen.get(namespace, name) if self._seen is not None else None
        same = record if record is not None and record.token == token else None
        if same is not None and (
            self._seen is None or not put_back or (observed is not None and not _newer(observed, same))
        ):
            return False
        answer = await self._api.apply(self._kind, make())
        if self._seen is not None:
            self._seen.note(answer)
        found = _Record(token, answer["metadata"].get("uid", ""), _asked(answer))
        self._records[namespace, name] = found
        if same is None:
            return False
        if found.uid != same.uid:
            return True  # it was deleted
        # Whoever changed fields that are not ours changed nothing that had to be put back.
        return observed is not None and found.asked != _asked(observed)

    def seen(self) -> list[Object]:
        """Return every object that is known of; none where they are not watched."""
        return self._seen.all() if self._seen is not None else []

    def changed(self, namespace: str, name: str) -> Hashable | None:
        """Return the token of an object that somebody changed since it was applied; None for one that nobody did."""
        record = self._records.get((namespace, name))
        observed = self._seen.get(namespace, name) if self._seen is not None else None
        if record is None or observed is None or observed["metadata"].get("uid") != record.uid:
            return None
        return record.token if _newer(observed, record) else None

    async def end(self, namespace: str, name: str, *, uid: str | None = None) -> None:
        """Delete an object; only if it has this uid."""
        self._records.pop((namespace, name), None)
        await self._api.delete(self._kind, namespace, name, uid=uid)


def _newer(observed: Object, record: _Record) -> bool:
    return bool(observed["metadata"].get("uid") != record.uid or _asked(observed) > record.asked)


def _asked(thing: Object) -> int:
    """Return its generation; of a kind that has none, such as ServiceAccounts, the version of the whole."""
    found = thing["metadata"].get("generation")
    return found if isinstance(found, int) else version_of(thing)
