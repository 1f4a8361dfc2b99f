"""A Kubernetes control plane of the tests' own: real etcd and kube-apiserver on loopback, with RBAC, and no nodes.

The programs are those of envtest: `KUBEBUILDER_ASSETS`, by default /usr/local/kubebuilder/bin.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import secrets
import shutil
import tempfile
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import urllib3
import yaml

from services.accounts import free_port
from services.processes import Process
from services.required import missing, require
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubernetes.client import ApiClient

_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    # Who asked for what, of service accounts alone: an administrator's requests are the tests' own.
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}
_STARTS_WITHIN = 60.0  # seconds
_ANSWERS_WITHIN = 30.0
_CONTROLLERS = (
    *("garbage-collector-controller", "namespace-controller", "serviceaccount-controller"),
    *("deployment-controller", "replicaset-controller", "disruption-controller", "pod-garbage-collector-controller"),
)
"""Those that act on what this project creates; each costs start-up time."""


class Refused(Exception):  # noqa: N818 - what an API server says, not what went wrong
    """An API server's answer of 400 and above."""

    def __init__(self, status: int, answer: Any) -> None:
        message = answer.get("message", "") if isinstance(answer, dict) else str(answer)
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class Cluster:
    """A running control plane. Every client of it is an administrator unless it brings another token."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs = programs
        self.folder = folder
        self.url = f"https://127.0.0.1:{free_port()}"
        self.kubeconfig = folder / "kubeconfig"
        self.token = secrets.token_hex(16)
        self._key = folder / "service-accounts.key"
        self._certificate = folder / "certificates" / "apiserver.crt"  # which the server makes for itself
        self._audit = folder / "audit.log"
        self._running: list[Process] = []
        self._http = urllib3.PoolManager(
            ca_certs=str(self._certificate), timeout=_ANSWERS_WITHIN, retries=False, maxsize=4
        )

    # --- asking ---

    def api(self, token: str | None = None) -> ApiClient:
        """Return a client of the official library."""
        import kubernetes.client as library  # noqa: PLC0415 - takes seconds, and few tests use it

        settings = library.Configuration(host=self.url, api_key={"authorization": f"Bearer {token or self.token}"})
        settings.ssl_ca_cert = str(self._certificate)
        return library.ApiClient(settings)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        accept: str = "application/json",
        content: str = "application/json",
        **query: str,
    ) -> Any:
        """Send a request and return the answer's JSON. Refused when the status is 400 or above."""
        answer = self._http.request(
            method,
            f"{self.url}{path}?{urllib.parse.urlencode(query)}",
            body=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token or self.token}", "Accept": accept, "Content-Type": content},
        )
        try:
            said = json.loads(answer.data)
        except ValueError:
            said = answer.data.decode(errors="replace")
        if answer.status >= 400:
            raise Refused(answer.status, said)
        return said

    def apply(self, path: str, body: Any, *, manager: str = "tests", token: str | None = None, **query: str) -> Any:
        """Apply an object on the server's side, as `kubectl apply --server-side --force-conflicts` does."""
        return self.request(
            "PATCH",
            path,
            body,
            token=token,
            content="application/apply-patch+yaml",
            fieldManager=manager,
            force="true",
            **query,
        )

    def token_for(self, service_account: str, namespace: str = "default") -> str:
        """Return a token of an existing service account, good for an hour."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        token: str = self.request("POST", path, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
        return token

    def create_namespace(self) -> str:
        """Make a namespace with a name of its own, and the service account that pods are admitted with."""
        name = f"test-{secrets.token_hex(4)}"
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        self.apply(f"/api/v1/namespaces/{name}/serviceaccounts/default", account)  # a controller may have been faster
        return name

    def install(self, definition: Any) -> Any:
        """Apply a CustomResourceDefinition, wait until it is served, and return it as the server has it."""
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}"
        self.apply(path, definition)
        group, names = definition["spec"]["group"], definition["spec"]["names"]
        version = definition["spec"]["versions"][0]["name"]

        def served() -> Any:
            found = self.request("GET", path)
            if {"type": "Established", "status": "True"}.items() <= _condition(found, "Established").items():
                with contextlib.suppress(Refused):  # known and served are some milliseconds apart
                    self.request("GET", f"/apis/{group}/{version}/{names['plural']}")
                    return found
            return None

        return eventually(served, within=_ANSWERS_WITHIN, what=f"{definition['metadata']['name']} to be served")

    # --- its life ---

    def start(self) -> None:
        """Start etcd and the API server, and return when it answers."""
        self._key.write_text(_private_key())
        (self.folder / "tokens").write_text(f'{self.token},admin,admin,"system:masters"\n')
        policy = self.folder / "audit.yaml"
        policy.write_text(yaml.safe_dump(_AUDIT_POLICY))
        store, peers = free_port(), free_port()
        self._run(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{store}",
            f"--advertise-client-urls=http://127.0.0.1:{store}",
            f"--listen-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-cluster=default=http://127.0.0.1:{peers}",
            "--log-level=warn",
        )
        self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{store}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={urllib.parse.urlsplit(self.url).port}",
            f"--cert-dir={self._certificate.parent}",
            f"--token-auth-file={self.folder / 'tokens'}",
            "--authorization-mode=RBAC",
            "--anonymous-auth=false",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self._audit}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._key}",
            f"--service-account-signing-key-file={self._key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",
            "--allow-privileged=true",
        )
        eventually(self._ready, within=_STARTS_WITHIN, what="the API server to be ready")
        self._write_kubeconfig()

    def start_controllers(self) -> None:
        """Start the controller manager: owners' garbage, namespaces, Deployments, ReplicaSets. Pods are never run."""
        if not (self.programs / "kube-controller-manager").exists():
            missing("kubernetes", "kube-controller-manager is not installed on this machine")
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            f"--controllers={','.join(_CONTROLLERS)}",
            f"--service-account-private-key-file={self._key}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
            f"--cert-dir={self.folder / 'controllers'}",
            "--concurrent-gc-syncs=2",
            "--kube-api-qps=1000",  # 20 by default: what one test leaves would keep the next ones waiting
            "--kube-api-burst=1000",
        )

    def stop(self) -> None:
        """Kill all of it."""
        self._http.clear()
        for process in reversed(self._running):
            process.close()

    def _run(self, program: str, *arguments: str) -> None:
        self._running.append(Process(self.programs / program, *arguments, cwd=self.folder))

    def _ready(self) -> bool:
        for process in self._running:
            if process.code is not None:
                raise RuntimeError(f"{process.command[0]} ended with {process.code}:\n{process.text[-3000:]}")
        try:
            # Not ready before its own roles are there; the namespace comes from a loop that readiness leaves out.
            self.request("GET", "/readyz")
            self.request("GET", "/api/v1/namespaces/default")
        except (urllib3.exceptions.HTTPError, OSError, Refused):
            return False
        return True

    def kubeconfig_of(self, token: str) -> Path:
        """Return a kubeconfig for another token."""
        path = self.folder / f"kubeconfig-{hashlib.sha256(token.encode()).hexdigest()[:12]}"
        path.write_text(self.kubeconfig.read_text().replace(self.token, token))
        path.chmod(0o600)
        return path

    def asked(self, user: str) -> list[dict[str, Any]]:
        """Return what a user asked for so far, as the audit log has it: verb, objectRef, responseStatus."""
        lines = (json.loads(line) for line in self._audit.read_text().splitlines())
        return [line for line in lines if line["user"]["username"] == user and line["stage"] != "RequestReceived"]

    def _write_kubeconfig(self) -> None:
        authority = base64.b64encode(self._certificate.read_bytes()).decode()
        self.kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "tests",
                    "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
                    "clusters": [
                        {"name": "tests", "cluster": {"server": self.url, "certificate-authority-data": authority}}
                    ],
                    "users": [{"name": "admin", "user": {"token": self.token}}],
                }
            )
        )
        self.kubeconfig.chmod(0o600)


@contextlib.contextmanager
def control_plane() -> Iterator[Cluster]:
    """Yield a running control plane; skip visibly where its programs are not installed."""
    programs = require("kubernetes")
    folder = Path(tempfile.mkdtemp(prefix="jq-kubernetes-", dir="/tmp"))
    cluster = Cluster(programs, folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _condition(found: Any, kind: str) -> dict[str, Any]:
    return next((c for c in found["status"]["conditions"] or () if c["type"] == kind), {})


def _private_key() -> str:
    """Make the key that signs service accounts' tokens: P-256, PEM (RFC 5915 without the optional public key)."""
    head, tail = bytes.fromhex("30310201010420"), bytes.fromhex("a00a06082a8648ce3d030107")
    text = base64.encodebytes(head + secrets.token_bytes(32) + tail).decode()
    return f"-----BEGIN EC PRIVATE KEY-----\n{text}-----END EC PRIVATE KEY-----\n"
