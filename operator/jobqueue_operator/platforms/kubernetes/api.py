"""The API server, in plain dictionaries: a few verbs, each with a deadline, each failure one of two errors.

ApiError      the server answered, and refused: `status` is HTTP's, the message is the server's own
  Unreachable no answer within the deadline, or none that can be read; asking again later may help
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from kubernetes.aio.client.exceptions import ApiException, OpenApiException

from jobqueue_operator.planner.workload.names import MANAGER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from kubernetes.aio.client import ApiClient

log = logging.getLogger(__name__)

DEADLINE = 10.0
"""Seconds that one request may take."""
PAUSE = 2.0
"""Seconds for which nobody is asked after a request that was not answered: a thousand of them would wait in turn."""
WATCH_SPAN = 240
"""Seconds after which the server ends a watch; then it is begun anew."""
WATCH_SILENCE = 300.0
"""Seconds after which a watch that was not ended is taken for dead."""
PAGE = 500
"""Objects in one page of a list."""

_APPLY = "application/apply-patch+yaml"
_UNREAD = ("template", "containers", "initContainers", "ephemeralContainers", "volumes")
"""Parts of a Deployment's or a pod's spec: what was asked for is known, and only its generation is compared."""
_MERGE = "application/merge-patch+json"
NOT_FOUND = 404

Object = dict[str, Any]


class ApiError(Exception):
    """The API server refused."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Unreachable(ApiError):  # noqa: N818 - reads as a fact
    """The API server gave no answer."""

    def __init__(self, message: str) -> None:
        super().__init__(0, message)


@dataclass(frozen=True, slots=True)
class Kind:
    """A namespaced kind of object."""

    api_version: str
    plural: str

    def path(self, namespace: str | None = None, name: str | None = None, part: str | None = None) -> str:
        """Return the path of the collection, of one object, or of a part of it such as its status."""
        root = "api" if "/" not in self.api_version else "apis"
        where = f"/namespaces/{namespace}" if namespace is not None else ""
        end = "".join(f"/{piece}" for piece in (name, part) if piece is not None)
        return f"/{root}/{self.api_version}{where}/{self.plural}{end}"


JOB_QUEUES = Kind("jobqueue.dev/v1alpha1", "jobqueues")
DOWNSTREAM_CAPACITIES = Kind("jobqueue.dev/v1alpha1", "downstreamcapacities")
DEPLOYMENTS = Kind("apps/v1", "deployments")
PODS = Kind("v1", "pods")
SECRETS = Kind("v1", "secrets")
SERVICE_ACCOUNTS = Kind("v1", "serviceaccounts")
EVENTS = Kind("events.k8s.io/v1", "events")
DISRUPTION_BUDGETS = Kind("policy/v1", "poddisruptionbudgets")
NETWORK_POLICIES = Kind("networking.k8s.io/v1", "networkpolicies")
AUTOSCALERS = Kind("autoscaling/v2", "horizontalpodautoscalers")


class Api:
    """The verbs. Every one raises ApiError."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._down_until = 0.0
        self._silent = False
        """Whether the last request was not answered, which was said then."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return an object, or None when there is none."""
        try:
            return await self._ask("GET", kind.path(namespace, name))
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    async def apply(self, kind: Kind, manifest: Mapping[str, Any]) -> Object:
        """Have the fields of `manifest` as they are in it, whoever set them; return the object as it is now."""
        metadata = manifest["metadata"]
        query = {"fieldManager": MANAGER, "force": "true"}
        return await self._ask("PATCH", kind.path(metadata["namespace"], metadata["name"]), query, manifest, _APPLY)

    async def apply_status(self, kind: Kind, manifest: Mapping[str, Any]) -> Object:
        """Have an object's status as in `manifest`."""
        metadata = manifest["metadata"]
        path = kind.path(metadata["namespace"], metadata["name"], "status")
        return await self._ask("PATCH", path, {"fieldManager": MANAGER, "force": "true"}, manifest, _APPLY)

    async def merge(self, kind: Kind, namespace: str, name: str, patch: Mapping[str, Any]) -> Object:
        """Change what a merge patch names; null removes."""
        return await self._ask("PATCH", kind.path(namespace, name), {"fieldManager": MANAGER}, patch, _MERGE)

    async def create(self, kind: Kind, manifest: Mapping[str, Any]) -> Object:
        """Create an object."""
        return await self._ask(
            "POST", kind.path(manifest["metadata"]["namespace"]), {"fieldManager": MANAGER}, manifest
        )

    async def delete(self, kind: Kind, namespace: str, name: str, *, uid: str | None = None) -> None:
        """Delete an object and, in the background, what it owns; only if it has this uid. None there is fine."""
        options: Object = {"propagationPolicy": "Background"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            await self._ask("DELETE", kind.path(namespace, name), None, options)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise

    async def list(self, kind: Kind, namespace: str | None, *, labels: str = "") -> tuple[list[Object], str]:
        """Return every object of a kind, page by page, and the resource version to watch from."""
        found: list[Object] = []
        query = {"limit": str(PAGE)} | ({"labelSelector": labels} if labels else {})
        while True:
            page = await self._ask("GET", kind.path(namespace), query)
            found += page.get("items") or []
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return found, metadata.get("resourceVersion", "")
            query["continue"] = metadata["continue"]

    async def watch(
        self, kind: Kind, namespace: str | None, version: str, *, labels: str = ""
    ) -> AsyncIterator[tuple[str, Object]]:
        """Yield changes, (type, object), from a resource version on, until the server ends it."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SPAN),
        } | ({"labelSelector": labels} if labels else {})
        bounds = aiohttp.ClientTimeout(total=None, sock_connect=DEADLINE, sock_read=WATCH_SILENCE)
        try:
            async with asyncio.timeout(DEADLINE):
                response = await self._send("GET", kind.path(namespace), query, bounds=bounds)
        except TimeoutError:
            raise Unreachable(f"the API server did not begin a watch within {DEADLINE:g}s") from None
        try:
            async for line in _lines(response):
                yield line
        finally:
            response.close()

    async def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Object:
        if time.monotonic() < self._down_until:
            raise Unreachable("the API server did not answer a moment ago")
        try:
            async with asyncio.timeout(DEADLINE):
                response = await self._send(method, path, query, body, content_type)
                answer = json.loads(await response.read())
        except Unreachable as error:
            raise self._unanswered(str(error)) from None
        except TimeoutError:
            raise self._unanswered(f"the API server did not answer within {DEADLINE:g}s") from None
        except (aiohttp.ClientError, ValueError) as error:
            raise Unreachable(f"the API server cannot be read: {str(error) or type(error).__name__}") from None
        if self._silent:
            self._silent = False
            log.info("the API server answers again")
        if not isinstance(answer, dict):
            raise Unreachable("the API server's answer is no object")
        return answer

    def _unanswered(self, why: str) -> Unreachable:
        self._down_until = time.monotonic() + PAUSE
        if not self._silent:
            self._silent = True
            log.warning("%s; what runs goes on as it is", why)
        return Unreachable(why)

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        bounds: aiohttp.ClientTimeout | None = None,
    ) -> aiohttp.ClientResponse:
        try:
            request = await self._client.param_serialize(
                method,
                path,
                query_params=list((query or {}).items()),
                header_params={"Accept": "application/json", "Content-Type": content_type},
                body=body,
                auth_settings=["BearerToken"],
            )
            answer = await self._client.call_api(*request, _request_timeout=bounds or DEADLINE)
        except (ApiException, OpenApiException, aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"the API server cannot be reached: {str(error) or type(error).__name__}") from None
        response: aiohttp.ClientResponse = answer.response
        if response.status >= 400:  # noqa: PLR2004 - HTTP
            raise ApiError(response.status, await _said(response))
        return response


async def _said(response: aiohttp.ClientResponse) -> str:
    try:
        said = json.loads(await response.read()).get("message")
    except (ValueError, AttributeError, aiohttp.ClientError, TimeoutError):
        said = None
    return str(said or f"HTTP {response.status} {response.reason}")[:1000]


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Object]]:
    try:
        while line := await response.content.readline():
            change = json.loads(line)
            kind, changed = change["type"], change["object"]
            if kind == "ERROR":
                raise ApiError(int(changed.get("code") or 500), str(changed.get("message") or "the watch failed"))
            changed["metadata"]["resourceVersion"]  # what it cannot go on from is no change
            yield kind, changed
    except (aiohttp.ClientError, HttpProcessingError, TimeoutError, ValueError, LookupError, TypeError) as error:
        raise Unreachable(f"the watch broke: {str(error) or type(error).__name__}") from None


def drop_unread(thing: Object) -> Object:
    """Take out of an object what nobody here reads and is most of it; a thousand of them are kept in memory."""
    thing["metadata"].pop("managedFields", None)
    spec: Object = thing.get("spec") or {}
    for part in _UNREAD:
        spec.pop(part, None)
    return thing
