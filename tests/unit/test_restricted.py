"""The checker itself: one pod that is good, and one that is not for each thing it looks for."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from services.restricted import violations

GOOD: dict[str, Any] = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "main",
            "ports": [{"containerPort": 8080}],
            "livenessProbe": {"httpGet": {"path": "/live", "port": 8080}},
            "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
            },
        }
    ],
    "volumes": [{"name": "tmp", "emptyDir": {}}],
}
POD, MAIN = ("securityContext",), ("containers", 0)
OWN = (*MAIN, "securityContext")
BAD: list[tuple[tuple[str | int, ...], Any, str]] = [
    (("hostNetwork",), True, "hostNetwork: shares the host's"),
    (("hostPID",), True, "hostPID: shares the host's"),
    (("hostIPC",), True, "hostIPC: shares the host's"),
    ((*POD, "runAsNonRoot"), None, "containers main: runAsNonRoot is not true"),
    ((*POD, "seccompProfile"), None, "containers main: has no seccomp profile"),
    ((*POD, "seccompProfile"), {"type": "Unconfined"}, "securityContext.seccompProfile: unconfined"),
    ((*POD, "runAsUser"), 0, "securityContext.runAsUser: root"),
    ((*POD, "sysctls"), [{"name": "kernel.msgmax", "value": "1"}], "securityContext.sysctls: kernel.msgmax is not"),
    ((*POD, "seLinuxOptions"), {"type": "spc_t"}, "securityContext.seLinuxOptions: not allowed"),
    ((*POD, "seLinuxOptions"), {"user": "root"}, "securityContext.seLinuxOptions: not allowed"),
    ((*POD, "appArmorProfile"), {"type": "Unconfined"}, "securityContext.appArmorProfile: unconfined"),
    ((*POD, "windowsOptions"), {"hostProcess": True}, "securityContext.windowsOptions: a process of the host"),
    (("volumes",), [{"name": "all", "hostPath": {"path": "/"}}], "volumes all: hostPath"),
    (("volumes",), [{"name": "far", "nfs": {"server": "x", "path": "/"}}], "volumes far: nfs"),
    ((*OWN, "privileged"), True, "containers main: privileged"),
    ((*OWN, "allowPrivilegeEscalation"), None, "containers main: allowPrivilegeEscalation is not false"),
    ((*OWN, "capabilities"), None, "containers main: does not drop ALL capabilities"),
    ((*OWN, "capabilities", "add"), ["SYS_ADMIN"], "containers main: adds capabilities SYS_ADMIN"),
    ((*OWN, "runAsNonRoot"), False, "containers main: runAsNonRoot is not true"),
    ((*OWN, "runAsUser"), 0, "containers main: securityContext.runAsUser: root"),
    ((*OWN, "seccompProfile"), {"type": "Unconfined"}, "containers main: has no seccomp profile"),
    ((*OWN, "procMount"), "Unmasked", "containers main: procMount is not Default"),
    ((*MAIN, "ports", 0, "hostPort"), 80, "containers main: takes a port of the host"),
    ((*MAIN, "livenessProbe", "httpGet", "host"), "10.0.0.1", "containers main: livenessProbe names a host"),
    (
        (*MAIN, "lifecycle", "preStop"),
        {"tcpSocket": {"host": "x", "port": 1}},
        "containers main: lifecycle.preStop names a host",
    ),
    (("initContainers",), [{"name": "first"}], "initContainers first: allowPrivilegeEscalation is not false"),
]


def spoilt(place: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """Return the good pod with another value, or none, at a place."""
    pod = copy.deepcopy(GOOD)
    *way, last = place
    holder: Any = pod
    for step in way:
        holder = holder[step]
    if value is None:
        del holder[last]
    else:
        holder[last] = value
    return pod


def test_a_good_pod_has_none() -> None:
    assert violations(GOOD) == []


@pytest.mark.parametrize(("place", "value", "reason"), BAD, ids=[f"{reason}" for *_, reason in BAD])
def test_each_violation_is_found(place: tuple[str | int, ...], value: Any, reason: str) -> None:
    found = violations(spoilt(place, value))
    assert any(each.startswith(reason) for each in found), found
