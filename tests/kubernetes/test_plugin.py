"""`kubectl jobqueue` on a real API server, and its `jobs` and `explain` on a real PostgreSQL."""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from jobqueue import queue
from jobqueue_operator.plugin import access, main
from services.required import require
from services.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from services.custom_resources import Resources
    from services.databases import Database
    from services.kubernetes import Cluster
    from services.processes import Process

Answer = tuple[int, str, str]
Here = Callable[..., Answer]
Run = Callable[..., "Process"]

MODULE = (sys.executable, "-m", "jobqueue_operator.plugin")
REF = {"name": "orders-db"}
STATUS = {
    "observedGeneration": 1,
    "reason": "DownstreamCapacity",
    "replicas": 1,
    "readyJobs": 40,
    "oldestMessageAge": "41s",
    "conditions": [
        {
            "type": "Ready",
            "status": "False",
            "reason": "HeldBack",
            "message": "email waits for units",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-05-04T08:00:00Z",
        }
    ],
    "classes": [
        {
            "name": "email",
            "replicas": 1,
            "desiredReplicas": 2,
            "readyJobs": 40,
            "inFlightJobs": 4,
            "scheduledJobs": 0,
            "deadJobs": 2,
            "oldestMessageAge": "41s",
            "reason": "DownstreamCapacity",
            "message": "orders-db gives 4 units",
        }
    ],
}
ALLOCATIONS = {
    "units": 6,
    "limit": 6,
    "inUse": 6,
    "allocations": [
        {"class": "email", "asked": 8, "allocated": 4, "heldBackBy": ["other/billing/ledger"]},
        {"jobQueue": "other/billing", "class": "ledger", "asked": 2, "allocated": 2, "heldBackBy": []},
    ],
}


@dataclass
class Shop:
    """A JobQueue `shop` of the classes email and report, its downstream, its Deployment and a pod that fails."""

    resources: Resources
    kubeconfig: Path

    @property
    def namespace(self) -> str:
        return self.resources.namespace

    @property
    def cluster(self) -> Cluster:
        return self.resources.cluster

    def make(self) -> None:
        for kind, name, spec in (
            ("DownstreamCapacity", "orders-db", {"units": 6}),
            (
                "JobQueue",
                "shop",
                {
                    "database": {"workerSecretRef": {"name": "w"}, "operatorSecretRef": {"name": "shop-operator"}},
                    "image": "registry.example/shop:1",
                    "app": "shop.jobs:app",
                    "classes": [
                        {"name": "email", "timeout": "30s", "concurrency": 4, "capacity": {"ref": REF}},
                        {"name": "report", "timeout": "30s"},
                    ],
                },
            ),
        ):
            document = {"apiVersion": "jobqueue.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
            self.resources.create(document, dry=False)
        self.resources.set_status("JobQueue", "shop", STATUS)
        allocations = json.loads(json.dumps(ALLOCATIONS))
        allocations["allocations"][0]["jobQueue"] = f"{self.namespace}/shop"
        self.resources.set_status("DownstreamCapacity", "orders-db", allocations)

    def core(self, plural: str, name: str = "", *, api: str = "/api/v1") -> str:
        return f"{api}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def work(self) -> None:
        labels = {"jobqueue.dev/queue": "shop", "jobqueue.dev/class": "email"}
        spec = {"containers": [{"name": "worker", "image": "x"}]}
        template: dict[str, Any] = {
            "metadata": {"labels": {**labels, "jobqueue.dev/revision": "5d21aa9c07"}},
            "spec": spec,
        }
        self.cluster.request(
            "POST",
            self.core("deployments", api="/apis/apps/v1"),
            {
                "metadata": {"name": "shop-email", "labels": labels},
                "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
            },
        )
        self.cluster.request(
            "POST", self.core("pods"), {**template, "metadata": {**template["metadata"], "name": "pod-1"}}
        )
        waiting = {"reason": "ImagePullBackOff", "message": "no such tag"}
        container = {"name": "worker", "image": "x", "imageID": "", "ready": False, "restartCount": 3}
        self.cluster.request(
            "PATCH",
            self.core("pods", "pod-1") + "/status",
            {"status": {"containerStatuses": [{**container, "state": {"waiting": waiting}}]}},
            content="application/merge-patch+json",
        )

    def secret(self, name: str, **values: str) -> None:
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        self.cluster.request("POST", self.core("secrets"), {"metadata": {"name": name}, "data": data})

    def spec(self) -> dict[str, Any]:
        found: dict[str, Any] = self.resources.get("JobQueue", "shop")["spec"]
        return found


@pytest.fixture
def shop(resources: Resources) -> Shop:
    made = Shop(resources, resources.cluster.kubeconfig)
    made.make()
    return made


@pytest.fixture
def here(shop: Shop, capsys: pytest.CaptureFixture[str]) -> Here:
    """Run a command in this process, which takes a tenth of the time of another."""

    def call(*arguments: str, kubeconfig: Path = shop.kubeconfig) -> Answer:
        where = ("-n", shop.namespace, "--kubeconfig", str(kubeconfig))
        before = dict(os.environ)
        try:
            code = main([arguments[0], *where, *arguments[1:]])
        finally:
            os.environ.clear()
            os.environ.update(before)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return call


@pytest.fixture
def user(shop: Shop, tmp_path: Path) -> Callable[..., Path]:
    """Make a kubeconfig of a user who may do this and nothing else: a list of (API group, resource, verb)."""

    def make(*rules: tuple[str, str, str]) -> Path:
        shop.cluster.request("POST", shop.core("serviceaccounts"), {"metadata": {"name": "bob"}})
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        role = [{"apiGroups": [group], "resources": [plural], "verbs": [verb]} for group, plural, verb in rules]
        shop.cluster.request("POST", shop.core("roles", api=rbac), {"metadata": {"name": "bob"}, "rules": role})
        shop.cluster.request(
            "POST",
            shop.core("rolebindings", api=rbac),
            {
                "metadata": {"name": "bob"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "bob"},
                "subjects": [{"kind": "ServiceAccount", "name": "bob", "namespace": shop.namespace}],
            },
        )
        return kubeconfig(shop, tmp_path / "bob", token=shop.cluster.token_for("bob", shop.namespace))

    return make


def kubeconfig(shop: Shop, path: Path, *, token: str | None = None, server: str | None = None) -> Path:
    """Write the administrator's kubeconfig with another token or server."""
    found = yaml.safe_load(shop.kubeconfig.read_text())
    if token is not None:
        found["users"][0]["user"] = {"token": token}
    if server is not None:
        found["clusters"][0]["cluster"]["server"] = server
    path.write_text(yaml.safe_dump(found))
    return path


@pytest.fixture
def support(database: Database) -> Iterator[dict[str, str]]:
    """A database with jobs, and what a Secret says of a login with the role jobqueue_support."""
    role, password = f"support_{secrets.token_hex(4)}", secrets.token_hex(8)
    with database.connect() as connection:
        for name in ("email", "report"):
            queue.set_class(connection, None, name, {"lease_seconds": 60, "timeout_seconds": 30})
        queue.enqueue_many(connection, [queue.NewJob("email", "nap", {"n": n}) for n in range(40)])
        group = "do $$ begin create role needs_password; exception when duplicate_object then null; end $$"
        connection.execute(group)
        made = sql.SQL("create role {} login password {} in role jobqueue_support, needs_password")
        connection.execute(made.format(sql.Identifier(role), sql.Literal(password)))
    place = conninfo_to_dict(database.dsn)
    yield {
        "host": str(place["host"]),
        "port": str(place["port"]),
        "dbname": str(place["dbname"]),
        "user": role,
        "password": password,
        "unrelated": "x",
    }
    with database.connect() as connection:
        connection.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


@pytest.fixture
def there(shop: Shop, run: Run, tmp_path: Path) -> Callable[..., Process]:
    """Run a command as a process of its own, with a folder for temporary files that is empty otherwise."""
    (tmp_path / "tmp").mkdir()

    def start(*arguments: str, **env: str) -> Process:
        where = ("-n", shop.namespace, "--kubeconfig", shop.kubeconfig)
        strange = {"JOBQUEUE_DSN": "host=wrong", "PGUSER": "wrong", "PGOPTIONS": "-c wrong=1"}
        return run(
            *MODULE, arguments[0], *where, *arguments[1:], env={"TMPDIR": str(tmp_path / "tmp"), **strange, **env}
        )

    return start


def ended(process: Process, *, code: int = 0) -> str:
    assert process.wait() == code, process.text
    assert "Traceback" not in process.text
    return process.text


# --- status ---


def test_status_by_kubectl_itself(shop: Shop, run: Run, tmp_path: Path) -> None:
    shop.work()
    script = tmp_path / "kubectl-jobqueue"
    script.write_text(f'#!/bin/sh\nexec {" ".join(MODULE)} "$@"\n')
    script.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "KUBECONFIG": str(shop.kubeconfig)}
    text = ended(run(require("kubectl"), "jobqueue", "status", "shop", "-n", shop.namespace, env=env))
    for line in (
        f"JobQueue shop in namespace {shop.namespace}: Ready False, HeldBack: email waits for units",
        "email: 1 worker, 2 decided",
        "  DownstreamCapacity: orders-db gives 4 units",
        "  jobs: 40 ready, the oldest 41s of 1m00s; 4 in flight, 0 scheduled, 2 dead",
        "  Deployment shop-email: 0 of 1 ready, revision 5d21aa9c07",
        "    downstream orders-db  asks 8 units, gets 4 of 6; held back by other/billing/ledger",
        "    pods                  pod-1: BackOff: ImagePullBackOff: no such tag",
        "report: no decision yet",
        f"downstream {shop.namespace}/orders-db: 6 of 6 units in use",
    ):
        assert line in text.splitlines()


def test_status_in_json_and_of_all(here: Here) -> None:
    code, out, err = here("status", "shop", "-o", "json")
    found = json.loads(out)
    assert (code, err, found["classes"][0]["oldest_message_age"]) == (0, "", 41.0)
    assert [hold["what"] for hold in found["classes"][0]["held_back_by"]] == ["downstream orders-db", "workers"]
    code, out, err = here("status")
    assert (code, err) == (0, "")
    assert out.splitlines()[1].split() == [
        *("shop", "False", "41s", "40", "-", "-", "1", "DownstreamCapacity"),
        *("HeldBack:", "email", "waits", "for", "units"),
    ]


def test_what_a_user_may_not_read_is_left_out_and_said(here: Here, user: Callable[..., Path]) -> None:
    bob = user(("jobqueue.dev", "jobqueues", "get"))
    code, out, err = here("status", "shop", kubeconfig=bob)
    assert code == 0
    assert "email: 1 worker, 2 decided" in out
    assert [line.split(" in namespace")[0] for line in err.splitlines()] == [
        "warning: get downstreamcapacities orders-db",
        "warning: list deployments",
        "warning: list pods",
    ]
    code, out, err = here("status", kubeconfig=bob)
    assert (code, out) == (1, "")
    assert err.startswith("error: list jobqueues in namespace ")
    assert "\nhint: ask for a Role that allows it; `kubectl auth can-i list jobqueues -n " in err


# --- pause, resume, restart ---


def test_pause_and_resume_change_the_classes_that_are_named(here: Here, shop: Shop) -> None:
    says = "shop: email is paused: its jobs wait, running ones finish, its workers stay\n"
    assert here("pause", "shop", "email") == (0, says, "")
    assert [each.get("paused", False) for each in shop.spec()["classes"]] == [True, False]
    assert here("pause", "shop", "email") == (0, "shop: email was paused already\n", "")
    found = json.loads(here("resume", "shop", "-o", "json")[1])
    assert (found["paused"], found["changed"], found["unchanged"]) == (False, ["email"], ["report"])
    assert [each.get("paused", False) for each in shop.spec()["classes"]] == [False, False]


def test_classes_that_move_meanwhile_are_found_again(here: Here, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = shop.resources.get("JobQueue", "shop")
    shop.resources.change("JobQueue", "shop", {"classes": shop.spec()["classes"][::-1]})
    readings = [stale]
    now = access.Cluster.job_queue
    monkeypatch.setattr(access.Cluster, "job_queue", lambda *a: readings.pop() if readings else now(*a))
    assert here("pause", "shop", "email")[0] == 0
    assert {each["name"]: each.get("paused", False) for each in shop.spec()["classes"]} == {
        "email": True,
        "report": False,
    }
    monkeypatch.setattr(access.Cluster, "job_queue", lambda *_: stale)
    code, out, err = here("pause", "shop", "report")
    assert (code, out) == (1, "")
    assert "somebody else changed it meanwhile\nhint: run the command again\n" in err


def test_restart_sets_the_annotation(here: Here, shop: Shop) -> None:
    code, out, _ = here("restart", "shop", "email", "-o", "json")
    moment = shop.resources.get("JobQueue", "shop")["metadata"]["annotations"]["restart.jobqueue.dev/email"]
    assert (code, json.loads(out)["restarted_at"]) == (0, moment)
    assert len(moment) == len("2026-05-04T08:00:00Z")


# --- what goes wrong ---


def test_wrong_commands(here: Here, shop: Shop) -> None:
    code, out, err = here("pause", "shop", "mail", "-o", "json")
    assert (code, out) == (2, "")
    assert json.loads(err) == {
        "error": "class: JobQueue shop has no class 'mail'",
        "hint": "the classes are: email, report",
    }
    assert here("restart", "shop", "mail")[0] == 2
    code, _, err = here("status", "ship")
    assert (code, err.splitlines()[0]) == (1, f"error: get jobqueues ship in namespace {shop.namespace}: there is none")
    assert here("status", "a/../b")[0] == 2


def test_clusters_that_cannot_be_used(here: Here, shop: Shop, tmp_path: Path) -> None:
    code, _, err = here("status", kubeconfig=tmp_path / "none")
    assert (code, err.splitlines()[0]) == (2, f"error: kubeconfig: there is no file {tmp_path / 'none'}")
    (tmp_path / "wrong").write_text("hello")
    assert here("status", kubeconfig=tmp_path / "wrong")[0] == 2
    code, _, err = here("status", "--context", "other")
    assert code == 2
    assert "Expected object with name other in " in err
    code, _, err = here("status", kubeconfig=kubeconfig(shop, tmp_path / "dead", server="https://127.0.0.1:1"))
    assert (code, err.splitlines()[0]) == (
        1,
        "error: the API server https://127.0.0.1:1 cannot be reached: Connection refused",
    )
    code, _, err = here("status", kubeconfig=kubeconfig(shop, tmp_path / "stranger", token="wrong"))
    assert (code, "does not accept the login" in err) == (1, True)


# --- jobs ---


def test_jobs_runs_the_queues_command_line_with_the_support_login(
    there: Callable[..., Process], shop: Shop, support: dict[str, str], tmp_path: Path
) -> None:
    shop.secret("shop-queue-support", **support)
    found = json.loads(ended(there("jobs", "shop", "--", "list", "--json", "--limit", "2")))
    assert [job["class"] for job in found] == ["email", "email"]
    # Where only the cluster resolves the name, as with port-forward: the address is ours, and all else the Secret's.
    shop.secret("inside", **{**support, "host": "db.data.svc", "port": "5432"})
    forwarded = ("--host", support["host"], "--port", support["port"])
    answer = ended(there("jobs", "shop", "--secret", "inside", *forwarded, "--", "show", "999"), code=1)
    assert answer == "error: there is no job 999, or its retention is over"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_database_that_only_the_cluster_reaches(here: Here, shop: Shop) -> None:
    shop.secret("inside", host="db.data.svc", dbname="d", user="u")
    code, out, err = here("jobs", "shop", "--secret", "inside", "--", "list")
    assert (code, out) == (1, "")
    assert err.startswith("error: Secret inside: the database at db.data.svc:5432 cannot be reached from here: ")
    assert "`kubectl port-forward -n data service/db 5432:5432`" in err
    assert "--host 127.0.0.1 --port 5432" in err
    code, out, err = here("explain", "shop", "--secret", "inside", "--host", "127.0.0.1", "--port", "1")
    assert (code, out) == (1, "")
    assert "the database at 127.0.0.1:1 cannot be reached from here: Connection refused\nhint: is that where" in err


def test_a_login_lasts_as_long_as_its_command(
    there: Callable[..., Process], shop: Shop, support: dict[str, str], database: Database, tmp_path: Path
) -> None:
    shop.secret("shop-queue-support", **support)
    with database.connect(autocommit=False) as connection, database.connect() as looking:
        connection.execute("lock table jobqueue.jobs in access exclusive mode")
        process = there("jobs", "shop", "--", "list")
        waits = "select 1 from pg_stat_activity where usename = %s and wait_event_type = 'Lock'"
        eventually(lambda: looking.execute(waits, [support["user"]]).fetchone(), within=40, what="the command to wait")
        (folder,) = (tmp_path / "tmp").glob("kubectl-jobqueue-*")
        assert {file.name for file in folder.iterdir()} == {"host", "port", "dbname", "user", "password"}
        modes = {stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}
        assert modes == {0o700, 0o600}
        process.signal(signal.SIGTERM)
        ended(process, code=128 + signal.SIGTERM)
        assert list((tmp_path / "tmp").iterdir()) == []
        with pytest.raises(ProcessLookupError):  # nobody of its group is left
            os.killpg(process.pid, 0)


def test_secrets_that_are_no_login(here: Here, shop: Shop, user: Callable[..., Path]) -> None:
    code, _, err = here("jobs", "shop", "--", "list")
    assert code == 1
    assert f"error: Secret shop-queue-support: there is none in namespace {shop.namespace}\nhint: create it" in err
    shop.secret("half", host="db", password="p")
    code, _, err = here("jobs", "shop", "--secret", "half", "--", "list")
    assert (code, err.splitlines()[0]) == (2, "error: Secret half: has no dbname, user")
    bob = user(("jobqueue.dev", "jobqueues", "get"))
    code, _, err = here("jobs", "shop", "--secret", "half", "--", "list", "--json", kubeconfig=bob)
    assert code == 1
    assert json.loads(err)["error"].startswith("Secret half: you may not read it: ")
    assert "auth can-i get secrets/half" in json.loads(err)["hint"]


# --- explain ---


def test_explain_asks_the_queue(here: Here, shop: Shop, support: dict[str, str]) -> None:
    shop.secret("shop-operator", **support)  # no support login: the operator's will do
    code, out, err = here("explain", "shop", "email")
    assert code == 0
    assert out.startswith("email at ")
    assert "\n  ready      40\n" in out
    assert "\ndownstream " in out
    assert "\nasked anew: " in out
    assert "report" not in out
    assert "warning: downstream orders-db: other/billing ledger has 2 units by its status" in err
    code, out, err = here("explain", "shop", "-o", "json")
    found = json.loads(out)
    assert (code, err, found["source"], found["classes"][0]["tick"]) == (0, "", "live", 5.0)
    assert [each["class"] for each in found["classes"]] == ["email", "report"]
    assert found["classes"][0]["allocation"]["shares"][0]["allocated"] <= 6


def test_explain_from_the_status_alone(here: Here, user: Callable[..., Path]) -> None:
    bob = user(("jobqueue.dev", "jobqueues", "get"))
    code, out, err = here("explain", "shop", "email", kubeconfig=bob)
    assert code == 0
    assert out.splitlines()[:2] == ["email: 1 worker, 2 decided", "  DownstreamCapacity: orders-db gives 4 units"]
    assert err.startswith("warning: from the status alone, ")
    assert "Secret shop-queue-support: you may not read it" in err
    assert json.loads(here("explain", "shop", "-o", "json", kubeconfig=bob)[1])["source"] == "status"
    assert here("explain", "shop", "--secret", "any", kubeconfig=bob)[0] == 1


def test_help_needs_neither_the_cluster_nor_its_client(capsys: pytest.CaptureFixture[str], run: Run) -> None:
    loaded = "import sys; from jobqueue_operator.plugin import main; main(sys.argv[1:]); print(sorted(sys.modules))"
    text = ended(run(sys.executable, "-c", loaded, "status", "--help"))
    assert "Example: kubectl jobqueue status shop" in text
    assert "'kubernetes'" not in text
    assert "'psycopg'" not in text
    assert main(["bogus"]) == 2
    assert capsys.readouterr().err.startswith("error: No such command 'bogus'")
