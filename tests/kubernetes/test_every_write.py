"""The operator, killed at each of its writes in turn: whatever was done by then, the next one brings it to an end.

JOBQUEUE_KILLS=1 (some minutes) kills on both sides of each write, and has an operator arrive after each kill.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import urllib.request
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from services.accounts import free_port
from services.kubernetes import Refused
from services.operators import Operated, downstream, job_class, job_queue, secret
from services.waiting import eventually
from services.write_proxy import WriteProxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from services.custom_resources import Resources
    from services.databases import Database
    from services.kubernetes import Cluster
    from services.processes import Process
    from services.write_proxy import Moment

LONG = bool(os.environ.get("JOBQUEUE_KILLS"))
MOMENTS: tuple[Moment, ...] = ("unsent", "unanswered") if LONG else ("unanswered",)
"""Before the write, what the operator did in the database since the last one is done; after it, what follows is not."""
WRITES_LEAST, WRITES_MOST = 12, 60
OWN_ROUNDS, ROUNDS = 2, 6
"""In which a fresh operator has done what is its own to do, and all of it, whatever it finds: pods are replaced before
workers become fewer, and are gone before others get their units."""
WAITS_FOR_PODS = frozenset({"replicas", "pods", "marked pods", "classes", "shares"})
UNITS, CHARGE = 6, 2
"""Of the downstream, and of a worker with its two slots: three workers at most."""
SHARED = {0: {"email": 2, "letters": 1}, 1: {"email": 1, "letters": 2}}
"""The workers of the classes that share it, in even and in odd versions: one hands its units to the other."""


@pytest.fixture
def operated(controllers: Cluster, resources: Resources, database: Database) -> Iterator[Operated]:
    made = Operated(controllers, resources)
    made.put(secret("shop-operator", database), secret("shop-worker", database), downstream("orders", units=UNITS))
    yield made
    made.stop()


class Run:
    """One operator, which is let at the API server when it is wanted: its imports take longer than its work."""

    def __init__(self, operated: Operated, folder: Path, stack: contextlib.ExitStack) -> None:
        self.proxy = stack.enter_context(WriteProxy(operated.cluster.kubeconfig, folder))
        self._port = free_port()
        self.process: Process = operated.start(
            kubeconfig=str(self.proxy.kubeconfig), health_port=str(self._port), network_policy="true"
        )

    def begin(self, last: tuple[int, Moment] | None) -> None:
        self.proxy.admit(last, lambda: self.process.signal(signal.SIGKILL))

    def rounds(self) -> int:
        """How many rounds it has ended."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/live") as answer:
            return int(json.load(answer)["rounds"])


class Relay:
    """One operator after the other, each with a manifest that was changed since the one before it was killed."""

    def __init__(self, operated: Operated, database: Database, folder: Path, stack: contextlib.ExitStack) -> None:
        self.operated, self.database = operated, database
        self.version = 0
        self.answers: list[tuple[str, Any]] = []
        """What the writes of all that ran were answered with."""
        self._folders = (folder / str(number) for number in itertools.count())
        self._stack = stack
        self._next = self._start()

    def _start(self) -> Run:
        return Run(self.operated, next(self._folders), self._stack)

    def run(self, last: tuple[int, Moment] | None) -> bool:
        """Let the next one bring what is there to the manifest; return whether it did, and was not killed before."""
        if self._next.process.code is not None:  # it has not been let in for longer than it waits for an answer
            self._next = self._start()
        run = self._next
        run.begin(last)
        self._next = self._start()
        wrong: dict[str, Any] = {}
        own: list[int] = []
        rounds: list[int] = []

        def over() -> bool:
            make_ready(self.operated)
            wrong.clear()
            if run.proxy.reached.is_set():
                return True
            wrong.update(differences(self.operated, self.version))
            with contextlib.suppress(OSError):  # it may have been killed since
                if not own and wrong.keys() <= WAITS_FOR_PODS:
                    own.append(run.rounds())
                if not wrong:
                    rounds.append(run.rounds())
            return bool(rounds)

        try:
            eventually(over, within=30, every=0.1)
        except AssertionError:
            raise AssertionError(f"version {self.version}, {last}: {wrong}\n{run.process.text}") from None
        self.answers += run.proxy.answers
        assert most_units(self.answers) <= UNITS
        if run.proxy.reached.is_set():
            assert run.process.wait() == -signal.SIGKILL
            return False
        assert own[0] <= OWN_ROUNDS, run.process.text
        assert rounds[0] <= ROUNDS, run.process.text
        run.process.signal(signal.SIGKILL)
        run.process.wait()
        return True

    def ask_for_another(self) -> None:
        """Change the manifest: image, number of workers, one class out and one in, which is scaled by its jobs."""
        self.version += 1
        guest = f"guest-{self.version}"
        with self.database.connect() as connection:
            connection.execute("SELECT jobqueue.cancel(id) FROM jobqueue.jobs WHERE status = 'pending'")
            connection.execute("SELECT jobqueue.set_class(NULL, %s, '{}')", [guest])
            connection.execute("SELECT jobqueue.enqueue(%s, 'work', '{}')", [guest])
        shared = [
            job_class(name, capacity={"ref": {"name": "orders"}}, replicas={"min": number, "max": number})
            for name, number in SHARED[self.version % 2].items()
        ]
        image = f"example/shop:{self.version}"
        self.operated.put(job_queue("shop", *shared, job_class(guest), image=image))


def workers(version: int) -> dict[str, int]:
    """Return how many workers a version asks for, by class."""
    return {**SHARED[version % 2], f"guest-{version}": 1}


def differences(operated: Operated, version: int) -> dict[str, Any]:
    """Return what is not as the manifest asks: by name, what is there and what should be."""
    asked = workers(version)
    names = {f"shop-{class_}" for class_ in asked}

    def listed(group: str, plural: str) -> list[Any]:
        found: list[Any] = operated.cluster.request("GET", f"{group}/namespaces/{operated.namespace}/{plural}")["items"]
        return found

    queue = operated.resources.get("JobQueue", "shop")
    status = queue.get("status") or {}
    capacity = operated.status("orders", "DownstreamCapacity")
    pods = [pod["metadata"] for pod in listed("/api/v1", "pods") if "deletionTimestamp" not in pod["metadata"]]
    deployments = {each["metadata"]["name"]: each["spec"] for each in listed("/apis/apps/v1", "deployments")}
    found: dict[str, tuple[Any, Any]] = {
        "images": (
            {name: each["template"]["spec"]["containers"][0]["image"] for name, each in deployments.items()},
            dict.fromkeys(names, f"example/shop:{version}"),
        ),
        "replicas": (
            {name: each["replicas"] for name, each in deployments.items()},
            {f"shop-{class_}": number for class_, number in asked.items()},
        ),
        "service accounts": (
            {each["metadata"]["name"] for each in listed("/api/v1", "serviceaccounts")},
            {"default", "shop-worker"},
        ),
        "generation": (status.get("observedGeneration"), queue["metadata"]["generation"]),
        "ready": (operated.condition("Ready").get("status"), "True"),
        "classes": ({c["name"]: c.get("desiredReplicas") for c in status.get("classes", ())}, asked),
        "shares": (
            {each["class"]: each["allocated"] for each in capacity.get("allocations", ())},
            {class_: number * CHARGE for class_, number in SHARED[version % 2].items()},
        ),
        "pods": (Counter(p["labels"]["jobqueue.dev/class"] for p in pods), asked),
        "marked pods": ([p["name"] for p in pods if "pod-deletion-cost" in str(p.get("annotations"))], []),
    }
    for group, plural in (("policy", "poddisruptionbudgets"), ("networking.k8s.io", "networkpolicies")):
        found[plural] = {each["metadata"]["name"] for each in listed(f"/apis/{group}/v1", plural)}, names
    return {name: pair for name, pair in found.items() if pair[0] != pair[1]}


def make_ready(operated: Operated) -> None:
    """Do what a node would: without ready pods no Deployment is rolled out."""
    path = f"/api/v1/namespaces/{operated.namespace}/pods"
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    for pod in operated.cluster.request("GET", path)["items"]:
        if pod["status"]["phase"] == "Pending":
            with contextlib.suppress(Refused):  # it is gone already
                operated.cluster.request(
                    "PATCH", f"{path}/{pod['metadata']['name']}/status", ready, content="application/merge-patch+json"
                )


def most_units(answers: list[tuple[str, Any]]) -> int:
    """Return the most units that the Deployments had at any moment, by what each write was answered with."""
    now: dict[str, int] = {}
    most = 0
    for path, answer in answers:
        if path.endswith(("/deployments/shop-email", "/deployments/shop-letters")):
            now[path] = answer["spec"]["replicas"]
            most = max(most, sum(now.values()) * CHARGE)
    return most


@pytest.mark.timeout(1800 if LONG else 300)  # twenty operators start: 80 s on a busy machine
def test_killed_at_every_write_it_still_arrives(operated: Operated, database: Database, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        relay = Relay(operated, database, tmp_path, stack)
        for number, moment in itertools.product(range(1, WRITES_MOST), MOMENTS):
            relay.ask_for_another()
            if relay.run((number, moment)):
                assert number > WRITES_LEAST
                return
            assert not LONG or relay.run(None)
    raise AssertionError(f"an operator still writes after {WRITES_MOST} writes")
