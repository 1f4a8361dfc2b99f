"""The restricted Pod Security Standard as a function, so that no cluster is needed to know what one would admit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VOLUMES = frozenset({
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
})  # fmt: skip
SELINUX_TYPES = frozenset({"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
SYSCTLS = frozenset({
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_syncookies",
})  # fmt: skip
HANDLERS = ("livenessProbe", "readinessProbe", "startupProbe")


def violations(pod_spec: Mapping[str, Any]) -> list[str]:
    """Return what a namespace that enforces `restricted` refuses in a pod's spec, one `place: reason` each."""
    context = pod_spec.get("securityContext") or {}
    found = [f"{field}: shares the host's" for field in ("hostNetwork", "hostPID", "hostIPC") if pod_spec.get(field)]
    found += _profiles("securityContext", context)
    found += [
        f"securityContext.sysctls: {entry['name']} is not a safe one"
        for entry in context.get("sysctls") or ()
        if entry["name"] not in SYSCTLS
    ]
    for volume in pod_spec.get("volumes") or ():
        found += [f"volumes {volume['name']}: {kind}" for kind in volume if kind not in {"name", *VOLUMES}]
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in pod_spec.get(field) or ():
            found += [f"{field} {container['name']}: {reason}" for reason in _container(container, context)]
    return found


def _container(container: Mapping[str, Any], pod: Mapping[str, Any]) -> Iterator[str]:
    own = container.get("securityContext") or {}
    capabilities = own.get("capabilities") or {}
    if own.get("privileged"):
        yield "privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation is not false"
    if "ALL" not in (capabilities.get("drop") or ()):
        yield "does not drop ALL capabilities"
    if added := set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"}:
        yield f"adds capabilities {', '.join(sorted(added))}"
    if own.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True:
        yield "runAsNonRoot is not true"
    if (own.get("seccompProfile") or pod.get("seccompProfile") or {}).get("type") not in {
        "RuntimeDefault",
        "Localhost",
    }:
        yield "has no seccomp profile"
    if own.get("procMount", "Default") != "Default":
        yield "procMount is not Default"
    if any(port.get("hostPort") for port in container.get("ports") or ()):
        yield "takes a port of the host"
    yield from _profiles("securityContext", own)
    yield from _hosts(container)


def _profiles(where: str, context: Mapping[str, Any]) -> Iterator[str]:
    """Say what a pod's and a container's context may both hold and must not."""
    selinux = context.get("seLinuxOptions") or {}
    if selinux.get("type", "") not in SELINUX_TYPES or selinux.get("user") or selinux.get("role"):
        yield f"{where}.seLinuxOptions: not allowed"
    if (context.get("appArmorProfile") or {}).get("type", "RuntimeDefault") not in {"RuntimeDefault", "Localhost"}:
        yield f"{where}.appArmorProfile: unconfined"
    if (context.get("seccompProfile") or {}).get("type") == "Unconfined":
        yield f"{where}.seccompProfile: unconfined"
    if context.get("runAsUser") == 0:
        yield f"{where}.runAsUser: root"
    if context.get("runAsNonRoot") is False:
        yield f"{where}.runAsNonRoot: false"
    if (context.get("windowsOptions") or {}).get("hostProcess"):
        yield f"{where}.windowsOptions: a process of the host"


def _hosts(container: Mapping[str, Any]) -> Iterator[str]:
    """A probe that names a host has the kubelet ask another machine."""
    handlers = {name: container.get(name) or {} for name in HANDLERS}
    handlers |= {f"lifecycle.{name}": handler for name, handler in (container.get("lifecycle") or {}).items()}
    for name, handler in handlers.items():
        if any((handler.get(kind) or {}).get("host") for kind in ("httpGet", "tcpSocket")):
            yield f"{name} names a host"
