from __future__ import annotations

import kopf
import pytest

from jobqueue_operator.cluster import handlers


@pytest.mark.parametrize(
    ("host", "server"), [("10.96.0.1", "https://10.96.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_the_api_server_of_a_pod_is_found_without_a_name_server(
    monkeypatch: pytest.MonkeyPatch, host: str, server: str
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    named = kopf.ConnectionInfo(server="https://kubernetes.default.svc", token="t")
    monkeypatch.setattr(kopf, "login_with_service_account", lambda **_: named)
    found = handlers.log_in()
    assert found is not None
    assert (found.server, found.token) == (server, "t")
