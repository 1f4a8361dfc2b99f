"""The cluster, with the user's own login: what the commands read and the one object they change."""

from __future__ import annotations

import base64
import binascii
import warnings
from typing import TYPE_CHECKING, Any

from jobqueue.cli.failure import Failed, Refused
from jobqueue_operator.plugin import INSTALL
from jobqueue_operator.plugin.refusals import Call, refused, unreachable
from jobqueue_operator.resources.names import label

try:
    import urllib3
    import yaml
    from kubernetes.client.exceptions import OpenApiException
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

    from kubernetes import client, config
except ModuleNotFoundError as missing:
    raise Refused(f"kubectl jobqueue needs {missing.name}", hint=INSTALL) from None

if TYPE_CHECKING:
    from jobqueue_operator.plugin.options import Aim

TIMEOUTS = (5.0, 30.0)
"""Seconds for a connection, and for an answer."""
LISTED_MOST = 1000
"""Objects of one answer."""
OURS = "/apis/jobqueue.dev/v1alpha1"
APPS = "/apis/apps/v1"
CORE = "/api/v1"
MANAGER = "kubectl-jobqueue"
"""Field manager of what a person changes by these commands."""


class Cluster:
    """One API server and one namespace of it. Every call raises Failed with what, why and a remedy."""

    def __init__(self, aim: Aim) -> None:
        """Read the kubeconfig. Raises Refused when there is none, or when it says nothing of what is meant."""
        settings = client.Configuration()
        settings.retries = False  # one answer, one message; the user may run it again
        context = _load(aim, settings)
        if not settings.verify_ssl:
            # The kubeconfig asks for it, and kubectl does not warn either.
            warnings.simplefilter("ignore", urllib3.exceptions.InsecureRequestWarning)
        self.server: str = settings.host
        self.namespace: str = _label(aim.namespace or context.get("namespace") or "default", what="--namespace")
        self._api = client.ApiClient(settings)

    def job_queue(self, name: str) -> dict[str, Any]:
        """Return a JobQueue as the API server has it."""
        return self._call("get", OURS, "jobqueues", self.namespace, _label(name, what="NAME"))

    def job_queues(self) -> list[dict[str, Any]]:
        """Return the JobQueues of the namespace, by name."""
        return self._list(OURS, "jobqueues")

    def capacity(self, namespace: str, name: str) -> dict[str, Any]:
        """Return a DownstreamCapacity of any namespace."""
        return self._call("get", OURS, "downstreamcapacities", namespace, name)

    def deployments(self, queue: str) -> list[dict[str, Any]]:
        """Return the Deployments of a JobQueue."""
        return self._list(APPS, "deployments", of=queue)

    def pods(self, queue: str) -> list[dict[str, Any]]:
        """Return the pods of a JobQueue, LISTED_MOST at most."""
        return self._list(CORE, "pods", of=queue)

    def secret(self, name: str) -> dict[str, bytes]:
        """Return the values of a Secret."""
        found = self._call("get", CORE, "secrets", self.namespace, _label(name, what="--secret"))
        try:
            return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
        except binascii.Error:
            raise Failed(f"Secret {name}: the API server sent what is not base64") from None

    def change(self, name: str, body: Any, *, kind: str) -> dict[str, Any]:
        """Patch a JobQueue, and return it; `kind` is `json-patch` or `merge-patch`. Raises Changed, too."""
        return self._call(
            "patch", OURS, "jobqueues", self.namespace, name, body=body, content=f"application/{kind}+json"
        )

    def _list(self, api: str, plural: str, *, of: str | None = None) -> list[dict[str, Any]]:
        query: list[tuple[str, Any]] = [("limit", LISTED_MOST)]
        if of is not None:
            query.append(("labelSelector", f"jobqueue.dev/queue={of}"))
        items: list[dict[str, Any]] = self._call("list", api, plural, self.namespace, query=query)["items"]
        return items

    def _call(
        self,
        verb: str,
        api: str,
        plural: str,
        namespace: str,
        name: str = "",
        *,
        query: list[tuple[str, Any]] | None = None,
        body: Any = None,
        content: str | None = None,
    ) -> dict[str, Any]:
        call = Call(verb, plural, namespace, name)
        method = "PATCH" if verb == "patch" else "GET"
        request = self._api.param_serialize(
            method=method,
            resource_path=f"{api}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else ""),
            query_params=[*(query or []), *([("fieldManager", MANAGER)] if method == "PATCH" else [])],
            header_params={"Accept": "application/json", **({"Content-Type": content} if content else {})},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            answer = self._api.call_api(*request, _request_timeout=TIMEOUTS)
            answer.read()
            found = self._api.response_deserialize(answer, {"2XX": "object"}).data
        except client.ApiException as error:
            if not error.status:
                raise unreachable(self.server, error) from None
            raise refused(call, error) from None
        except (urllib3.exceptions.HTTPError, OpenApiException, OSError) as error:
            raise unreachable(self.server, error) from None
        if not isinstance(found, dict):
            raise Failed(f"{call}: what answers at {self.server} is no API server", hint="choose another --context")
        return found


def _load(aim: Aim, settings: client.Configuration) -> dict[str, Any]:
    """Set what the kubeconfig says of a context, and return the context."""
    paths = str(aim.kubeconfig) if aim.kubeconfig is not None else config.KUBE_CONFIG_DEFAULT_LOCATION
    hint = "give --kubeconfig FILE, or set KUBECONFIG; `kubectl config get-contexts` shows what there is"
    try:
        merger = KubeConfigMerger(paths)
        if merger.config is None:
            raise Refused(f"kubeconfig: there is no file {paths}", hint=hint)
        loader = KubeConfigLoader(
            config_dict=merger.config, active_context=aim.context, config_persister=merger.save_changes
        )
        loader.load_and_set(settings)
        context: dict[str, Any] = loader.current_context["context"]
    except (
        config.ConfigException,
        yaml.YAMLError,
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
    ) as error:
        # The client takes a file apart as it goes, so a wrong one may fail in any way.
        said = (str(error).splitlines() or [type(error).__name__])[0].removeprefix("Invalid kube-config file. ")
        raise Refused(f"kubeconfig {paths}: {said}", hint=hint) from None
    return context


def _label(text: str, *, what: str) -> str:
    try:
        return label(text)
    except ValueError as error:
        raise Refused(f"{what}: {text[:80]!r} {error}") from None
