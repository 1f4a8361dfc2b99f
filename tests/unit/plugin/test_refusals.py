"""What an API server or a Secret refuses, with its remedy."""

import json
from typing import Any

import pytest
import urllib3
from kubernetes.client.exceptions import ApiException

from jobqueue.cli.failure import Failed, Refused
from jobqueue_operator.plugin import login
from jobqueue_operator.plugin.refusals import Call, Changed, Forbidden, NotFound, refused, unreachable

GET = Call("get", "jobqueues", "web", "shop")
PATCH = Call("patch", "jobqueues", "web", "shop")


def answered(status: int, **body: Any) -> ApiException:
    return ApiException(status=status, reason="Because", body=json.dumps(body))


@pytest.mark.parametrize(
    ("call", "error", "kind", "message", "hint"),
    [
        (GET, answered(401, message="Unauthorized"), Failed, "does not accept the login: Unauthorized", "log in again"),
        (
            GET,
            answered(403, message="bob cannot"),
            Forbidden,
            "forbidden: bob cannot",
            "auth can-i get jobqueues/shop -n web",
        ),
        (GET, answered(404, details={"name": "shop"}), NotFound, "there is none", "kubectl get jobqueues -n web"),
        (GET, ApiException(status=404, body="404 page not found"), NotFound, "knows no jobqueues", "install the chart"),
        (GET, answered(503), Failed, "answers 503: Because", "try again"),
        (PATCH, answered(409, message="conflict"), Changed, "somebody else changed it", "run the command again"),
        (PATCH, answered(422, details={}), Changed, "somebody else changed it", "run the command again"),
        (
            PATCH,
            answered(422, message="spec.app: too long", details={"causes": [{"field": "spec.app"}]}),
            Failed,
            "refused: spec.app: too long",
            "mend that field",
        ),
    ],
)
def test_answers(call: Call, error: ApiException, kind: type[Failed], message: str, hint: str) -> None:
    found = refused(call, error)
    assert type(found) is kind
    assert found.status == 1
    assert str(found).startswith(f"{call.verb} jobqueues shop in namespace web: ")
    assert message in str(found)
    assert found.hint is not None
    assert hint in found.hint


def test_no_answer_says_the_innermost_reason() -> None:
    pool = urllib3.HTTPSConnectionPool("db", 1)
    inner = urllib3.exceptions.MaxRetryError(pool, "/x", OSError(111, "Connection refused"))
    assert (
        str(unreachable("https://db:1", inner)) == "the API server https://db:1 cannot be reached: Connection refused"
    )
    tls = ApiException(status=0, reason="SSLError\ncertificate verify failed")
    found = unreachable("https://db:1", tls)
    assert str(found).endswith(": certificate verify failed")
    assert str(found.hint).startswith("check certificate-authority-data")


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("db", "kubectl port-forward -n web service/db 5433:5433"),
        ("db.web", "kubectl port-forward -n web service/db "),
        ("db.data.svc", "kubectl port-forward -n data service/db "),
        ("db.data.svc.cluster.local.", "kubectl port-forward -n data service/db "),
        ("db.example.com", "through a tunnel with --host and --port"),
        ("10.0.0.7", "through a tunnel with --host and --port"),
    ],
)
def test_how_to_reach_a_database(host: str, says: str) -> None:
    assert says in login.remedy(host, "5433", "web")


def test_a_secret_that_is_no_login() -> None:
    found = login.read("s", "web", {"host": b"db", "dbname": b"d", "user": b"u", "token": b"no business of ours"})
    assert dict(found.values) == {"host": b"db", "dbname": b"d", "user": b"u"}
    with pytest.raises(Refused, match="Secret s: has no host, user") as missing:
        login.read("s", "web", {"dbname": b"d", "user": b" \n", "password": b"p"})
    assert str(missing.value.hint).startswith("its keys must be host, port, dbname")
