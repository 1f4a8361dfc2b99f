"""An effect outside the database: a payment, charged once although its job runs twice.

`tx.once` records an effect exactly once inside the queue's own database, and nowhere else: no queue can make a call to
another machine happen once. What it can do is give every attempt the same idempotency key, `job.effect_key`; the other
side has to honour it. Here a stub of a payment provider does, and loses the answer to its first request::

    python examples/external_effect.py                # JOBQUEUE_DSN says where; needs jobqueue-operator[local]
"""

from __future__ import annotations

import http.client
import http.server
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pydantic

import jobqueue
from jobqueue import App, SyncJob, queue

TABLE = "CREATE TABLE IF NOT EXISTS paid (invoice bigint, charge text)"
WITHIN = 30.0
"""Seconds that the job may take, its retry included."""

app = App()


class Charge(pydantic.BaseModel):
    """A reference to what is to be paid."""

    invoice: int
    cents: int


@app.handler("invoice.charge", timeout=15)
def charge(job: SyncJob[Charge]) -> None:
    """Charge the invoice at the provider, then record it here."""
    provider = http.client.HTTPConnection(os.environ["PROVIDER"], timeout=10)
    provider.request("POST", "/charges", job.payload.model_dump_json(), {"Idempotency-Key": job.effect_key("charge")})
    charged = json.loads(provider.getresponse().read())["id"]
    with job.transaction() as tx:
        if tx.once(f"paid-{job.payload.invoice}"):
            tx.execute("INSERT INTO paid VALUES (%s, %s)", (job.payload.invoice, charged))


class Provider(http.server.ThreadingHTTPServer):
    """A stub of a payment provider: it charges once for each idempotency key, and its first answer gets lost."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.requests = 0
        self.charges: dict[str, str] = {}
        threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True).start()


class _Request(http.server.BaseHTTPRequestHandler):
    server: Provider

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests += 1
        known = self.server.charges.setdefault(self.headers["Idempotency-Key"], f"ch-{len(self.server.charges) + 1}")
        if self.server.requests == 1:
            self.close_connection = True  # charged, and the answer never arrives
            return
        answer = json.dumps({"id": known}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


def main() -> int:
    """Enqueue one charge, run a worker until it is done, and count."""
    dsn = os.environ.get("JOBQUEUE_DSN", "")
    with psycopg.connect(dsn, autocommit=True) as conn, Provider() as provider:
        conn.execute(TABLE)
        queue.set_class(conn, None, "payment", {"backoff_initial_seconds": 0.1, "timeout_seconds": 20})
        job = jobqueue.enqueue(conn, "payment", "invoice.charge", {"invoice": 7, "cents": 4200}, key="invoice-7").id
        host, port = provider.server_address[:2]
        worker = subprocess.Popen(
            [sys.executable, "-m", "jobqueue", "worker", "--app", "external_effect:app", "--class", "payment"],
            cwd=Path(__file__).parent,
            env={**os.environ, "PROVIDER": f"{host!s}:{port}"},
            stderr=subprocess.DEVNULL,
        )
        try:
            status, attempts = _wait(conn, job)
        finally:
            worker.terminate()  # drains
            worker.wait(WITHIN)
            provider.shutdown()
        print(f"job {status} after {attempts} attempts: {provider.requests} requests, {len(provider.charges)} charge")
    return 0 if (status, len(provider.charges)) == ("done", 1) else 1


def _wait(conn: psycopg.Connection[Any], job: int) -> tuple[str, int]:
    until = time.monotonic() + WITHIN
    while True:
        row = conn.execute("SELECT status, attempts FROM jobqueue.jobs WHERE id = %s", [job]).fetchone()
        status, attempts = row or ("gone", 0)
        if status not in {"pending", "running"} or time.monotonic() > until:
            return status, attempts
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
