"""Options and fixtures: a cluster, images in it, a database server, and a place of its own for each scenario.

A run leaves nothing in the cluster and in the database server, and fails when it finds that it did.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from e2e import databases, images
from e2e.clusters import Kind, Kubectl, eventually
from e2e.places import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.databases import Server
    from e2e.images import Images

CRDS = Path(__file__).parents[1] / "crds"
LABEL = "jobqueue.dev/e2e"
"""On every namespace that a run makes; the value is the run's name."""
_SCENARIO = 600
"""Seconds that a scenario may take."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Say where to run."""
    group = parser.getgroup("e2e")
    group.addoption("--kubeconfig", type=Path, help="of the cluster to use; KUBECONFIG otherwise")
    group.addoption("--kind", action="store_true", help="make a cluster by the program kind, and take it away again")
    group.addoption(
        "--image-operator", help="the operator's image, with its tag, where the nodes have it or can pull it"
    )
    group.addoption("--image-worker", help="the image made of e2e/app, likewise")
    group.addoption("--load-command", help="build both, and bring them to the nodes by this command: 'CMD {archive}'")
    group.addoption("--builder", default="docker", help="what builds: docker, podman or buildah, with options")
    group.addoption("--base", default="", help="image to build on; the Dockerfiles' own otherwise")
    group.addoption("--database", help="DSN of a PostgreSQL server's superuser, as pods reach it")
    group.addoption("--database-local", help="the same as this machine reaches it, where that differs")
    group.addoption(
        "--database-image", default="docker.io/library/postgres:18", help="without --database: run this in a pod"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give scenarios more time than tests have."""
    for item in items:
        item.add_marker(pytest.mark.timeout(_SCENARIO))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show the state of the cluster beside a failure."""
    report: pytest.TestReport = yield  # type: ignore[assignment]
    place = getattr(item, "funcargs", {}).get("place")
    if report.failed and report.when == "call" and place is not None:
        report.sections.append(("the scenario's namespace", place.describe()))
    return report  # type: ignore[return-value]


@pytest.fixture(scope="session")
def run_name() -> str:
    """A name that nobody else has."""
    return f"e2e-{secrets.token_hex(3)}"


@pytest.fixture(scope="session")
def kind(
    request: pytest.FixtureRequest, run_name: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kind | None]:
    """The cluster that was made for this run, if one was asked for."""
    if not request.config.getoption("--kind"):
        yield None
        return
    made = Kind(run_name, tmp_path_factory.mktemp("kind") / "kubeconfig")
    try:
        made.create()
        yield made
    finally:
        made.delete()


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, kind: Kind | None) -> Kubectl:
    """The cluster."""
    given = kind.kubeconfig if kind is not None else request.config.getoption("--kubeconfig")
    given = given or os.environ.get("KUBECONFIG")
    if not given:
        raise pytest.UsageError("which cluster? --kubeconfig FILE, KUBECONFIG, or --kind to make one")
    return Kubectl(Path(given).absolute())


@pytest.fixture(scope="session")
def nodes_images(request: pytest.FixtureRequest, kind: Kind | None, tmp_path_factory: pytest.TempPathFactory) -> Images:
    """The images, once the nodes have them."""
    option = request.config.getoption
    operator, worker, command = option("--image-operator"), option("--image-worker"), option("--load-command")
    if operator and worker:
        return images.Images(operator, worker)
    if not command and kind is None:
        raise pytest.UsageError("which images? --image-operator and --image-worker, or --load-command to build them")
    load = images.loader(command) if kind is None else kind.load
    return images.build(option("--builder"), option("--base"), tmp_path_factory.mktemp("images"), load)


@pytest.fixture(scope="session")
def _definitions(cluster: Kubectl) -> Iterator[None]:
    there = cluster.get("crd", "jobqueues.jobqueue.dev") is not None
    cluster("apply", "--server-side", "--force-conflicts", f"--filename={CRDS}")
    yield
    if not there and not cluster.items("namespaces", f"--selector={LABEL}"):
        cluster("delete", f"--filename={CRDS}")


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, cluster: Kubectl, run_name: str) -> Iterator[Server]:
    """A PostgreSQL server."""
    given = request.config.getoption("--database")
    if given:
        yield databases.Server(given, request.config.getoption("--database-local") or given)
        return
    home = _namespace(cluster, f"{run_name}-database", run_name)
    try:
        yield from databases.in_pod(home, request.config.getoption("--database-image"))
    finally:
        _remove(home)


@pytest.fixture(scope="session")
def _leaves_nothing(cluster: Kubectl, server: Server, run_name: str, _definitions: None) -> Iterator[None]:
    yield
    left = [item["metadata"]["name"] for item in cluster.items("namespaces", f"--selector={LABEL}={run_name}")]
    left = [name for name in left if not name.endswith("-database")]
    assert not left, f"namespaces are left: {left}"
    assert not (names := server.names(_database_name(run_name))), f"databases or logins are left: {names}"


@pytest.fixture
def empty_place(
    cluster: Kubectl, nodes_images: Images, server: Server, run_name: str, _leaves_nothing: None
) -> Iterator[Place]:
    """A namespace and a database, with nothing in them."""
    name = f"{run_name}-{secrets.token_hex(3)}"
    database = server.create(_database_name(name))
    home = _namespace(cluster, name, run_name)
    try:
        yield Place(home, database, nodes_images)
    finally:
        try:
            _remove(home)
        finally:
            database.drop()


@pytest.fixture
def place(empty_place: Place) -> Place:
    """A namespace and a database, with an operator that serves them."""
    empty_place.install()
    return empty_place


def _database_name(name: str) -> str:
    return name.replace("-", "_")


def _namespace(cluster: Kubectl, name: str, run_name: str) -> Kubectl:
    labels = {LABEL: run_name, "pod-security.kubernetes.io/warn": "restricted"}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    made = Kubectl(cluster.kubeconfig, name)
    eventually(lambda: made.get("serviceaccount", "default"), within=60, what="the namespace's ServiceAccount")
    return made


def _remove(home: Kubectl) -> None:
    home("delete", "namespace", home.namespace, "--ignore-not-found", "--timeout=170s")
