"""A database with logins of its own for each scenario, on a server that the pods and this machine can reach."""

from __future__ import annotations

import re
import secrets
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from e2e.clusters import eventually
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from jobqueue import migrate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.clusters import Kubectl

TABLE = "CREATE TABLE call (job bigint, attempt int, worker text, began timestamptz, ended timestamptz)"
"""What app/jobs.py writes to."""


@dataclass(frozen=True)
class Server:
    """A PostgreSQL server, as its superuser: DSN as pods reach it, and as this process does."""

    pods: str
    local: str

    def create(self, name: str) -> Database:
        """Make a database with a migrated queue, and a login for workers and one for the operator."""
        made = Database(self, name, secrets.token_hex(12))
        with self.admin() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        with made.connect() as connection:
            migrate.apply(connection)
            connection.execute(TABLE)
            for role in ("worker", "operator"):
                statement = "CREATE ROLE {} LOGIN PASSWORD {} IN ROLE {}"
                names = sql.Identifier(made.login(role)), sql.Literal(made.password), sql.Identifier(f"jobqueue_{role}")
                connection.execute(sql.SQL(statement).format(*names))
            grant = sql.SQL("GRANT SELECT, INSERT, UPDATE ON call TO {}")
            connection.execute(grant.format(sql.Identifier(made.login("worker"))))
        return made

    def admin(self, name: str = "postgres") -> psycopg.Connection[Any]:
        """Connect to a database of it."""
        return psycopg.connect(make_conninfo(self.local, dbname=name), autocommit=True)

    def names(self, prefix: str) -> list[str]:
        """Return the databases and logins whose names begin so."""
        asked = "SELECT datname FROM pg_database UNION ALL SELECT rolname FROM pg_roles"
        with self.admin() as connection:
            return [name for (name,) in connection.execute(asked) if name.startswith(prefix)]


@dataclass(frozen=True)
class Database:
    """One scenario's."""

    server: Server
    name: str
    password: str

    def login(self, role: str) -> str:
        """Return the login's name of `worker` or `operator`."""
        return f"{self.name}_{role}"

    def connect(self) -> psycopg.Connection[Any]:
        """Connect as the superuser."""
        return self.server.admin(self.name)

    def secret(self, name: str, role: str) -> dict[str, Any]:
        """Return a Secret with a login."""
        place = conninfo_to_dict(self.server.pods)
        data = {"host": place["host"], "port": str(place.get("port") or 5432), "dbname": self.name}
        data |= {"user": self.login(role), "password": self.password}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}

    def drop(self) -> None:
        """Take it away with its logins."""
        with self.server.admin() as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(self.name)))
            for role in ("worker", "operator"):
                connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(self.login(role))))


def in_pod(kubectl: Kubectl, image: str) -> Iterator[Server]:
    """Run PostgreSQL in a pod of the official image, or of one that is configured like it, and yield it."""
    password = secrets.token_hex(12)
    variables = [{"name": "POSTGRES_PASSWORD", "value": password}]
    ready = {"exec": {"command": ["pg_isready", "--username=postgres", "--host=127.0.0.1"]}, "periodSeconds": 1}
    container = {"name": "postgres", "image": image, "env": variables, "readinessProbe": ready}
    metadata = {"name": "postgres", "labels": {"app": "postgres"}}
    kubectl.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": {"app": "postgres"}, "ports": [{"port": 5432}]},
        },
    )
    kubectl("wait", "--for=condition=Ready", "pod/postgres", "--timeout=170s")
    # By its number: not every cluster has a name server.
    host = kubectl.get("service", "postgres")["spec"]["clusterIP"]
    forward = ("port-forward", "--address=127.0.0.1", "pod/postgres", ":5432")
    command = ("kubectl", "--kubeconfig", str(kubectl.kubeconfig), "--namespace", kubectl.namespace, *forward)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            said = re.search(r"127\.0\.0\.1:(\d+)", line)
            if said is None:
                raise AssertionError(f"kubectl port-forward said {line!r} and no port")
            parts = {"user": "postgres", "password": password, "dbname": "postgres"}
            local = make_conninfo("", host="127.0.0.1", port=said[1], **parts)
            eventually(lambda: _answers(local), within=30, what="PostgreSQL in its pod")
            yield Server(make_conninfo("", host=host, port="5432", **parts), local)
        finally:
            process.terminate()


def _answers(dsn: str) -> bool:
    try:
        psycopg.connect(dsn, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True
