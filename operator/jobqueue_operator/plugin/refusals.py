"""What an API server, or the way to it, refused: what, why and what to do.

Refused (exit status 2)
└── Failed (1)
    ├── NotFound    there is no such object, or no such kind of object
    ├── Forbidden   the user may not do this
    └── Changed     a patch's test did not hold: somebody else changed the object first
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from jobqueue.cli.failure import Failed
from jobqueue.cli.writing import printable

if TYPE_CHECKING:
    from kubernetes.client.exceptions import ApiException

MESSAGE_MOST = 500
"""Characters of a server's message that are repeated."""


class NotFound(Failed):
    """There is no such object, or the API server does not know its kind."""


class Forbidden(Failed):
    """The user may not do this."""


class Changed(Failed):
    """The object is not as it was read: a patch that said how it should be was not applied."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call, as it is named in an error."""

    verb: str
    plural: str
    namespace: str
    name: str = ""

    def __str__(self) -> str:
        """Read as `get secrets shop in namespace default`."""
        return " ".join(filter(None, (self.verb, self.plural, self.name, "in namespace", self.namespace)))


def refused(call: Call, error: ApiException) -> Failed:
    """Return what an answer other than 2xx means."""
    said = _message(error)
    if error.status == HTTPStatus.UNAUTHORIZED:
        return Failed(
            f"{call}: the API server does not accept the login: {said}",
            hint="log in again, or choose another --context; `kubectl auth whoami` tries the same login",
        )
    if error.status == HTTPStatus.FORBIDDEN:
        named = f"/{call.name}" if call.name else ""
        return Forbidden(
            f"{call}: forbidden: {said}",
            hint=f"ask for a Role that allows it; `kubectl auth can-i {call.verb} {call.plural}{named} "
            f"-n {call.namespace}` tells when you have one",
        )
    if error.status == HTTPStatus.NOT_FOUND:
        return _missing(call, error)
    if error.status in {HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY} and call.verb == "patch":
        # Refused by the schema it has causes; a test that does not hold has none.
        if error.status == HTTPStatus.CONFLICT or not _status(error).get("details", {}).get("causes"):
            return Changed(f"{call}: somebody else changed it meanwhile", hint="run the command again")
        return Failed(f"{call}: refused: {said}", hint="mend that field of the manifest, and apply it again")
    return Failed(f"{call}: the API server answers {error.status}: {said}", hint="try again in a moment")


def unreachable(server: str, error: Exception) -> Failed:
    """Return what it means that no answer came."""
    said = printable(_innermost(error))[:MESSAGE_MOST]
    hint = "is that the right cluster (--context, --kubeconfig), and can it be reached from here?"
    if "CERTIFICATE" in said.upper():
        hint = "check certificate-authority-data in the kubeconfig, or what stands between here and the server"
    return Failed(f"the API server {server} cannot be reached: {said}", hint=hint)


def _innermost(error: Exception) -> str:
    """Return what the error says that is at the bottom: those of the client and of its pool wrap each other."""
    while isinstance(inner := getattr(error, "reason", None) or error.__cause__, Exception):
        error = inner
    reason = getattr(error, "reason", None)
    if reason and isinstance(reason, str):
        return reason.splitlines()[-1]
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


def _missing(call: Call, error: ApiException) -> NotFound:
    # About an object the server answers with its name; about a kind that it does not have, with none.
    if call.name and _status(error).get("details", {}).get("name"):
        return NotFound(
            f"{call}: there is none",
            hint=f"kubectl get {call.plural} -n {call.namespace} lists what there is; -n names another namespace",
        )
    return NotFound(
        f"{call}: the API server knows no {call.plural}",
        hint="install the chart jobqueue-operator, which brings the CRDs, or choose another --context",
    )


def _status(error: ApiException) -> dict[str, dict[str, object]]:
    try:
        found = json.loads(error.body or "")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _message(error: ApiException) -> str:
    said = _status(error).get("message") or error.reason or "no reason given"
    return printable(said)[:MESSAGE_MOST]
