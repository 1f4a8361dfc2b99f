"""A process for one slot: imports the app once, then runs one job at a time, as the runner sends them.

It leads its own session and group. When the runner goes away, it kills its group, itself included.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import os
import queue as thread_queue
import signal
import socket
import threading
from contextvars import copy_context
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from jobqueue import app as app_module
from jobqueue.errors import ConfigurationError
from jobqueue.job import Job, SyncJob
from jobqueue.queue import Claimed
from jobqueue.worker import faults, logs, pipe
from jobqueue.worker.clock import now
from jobqueue.worker.link import database
from jobqueue.worker.orders import Orders
from jobqueue.worker.pools import AsyncPool, SyncPool

if TYPE_CHECKING:
    from jobqueue.app import App, Handler
    from jobqueue.worker.faults import Fault


class ChildLease:
    """The lease of the job that runs here; the runner tells of renewals, and kills rather than cancels."""

    def __init__(self, claimed: Claimed, schema: str, end: float, lend: Any) -> None:
        self.id = claimed.id
        self.token = claimed.token
        self.schema = schema
        self.acked = False
        self.committing = False
        self.cancelled = False
        self.end = end
        self._lend = lend

    def left(self) -> float:
        """Seconds until the lease ends."""
        return max(0.0, self.end - now())

    def connection(self) -> Any:
        """Lend a connection of the handler's kind."""
        return self._lend()


class Inbox(threading.Thread):
    """Reads the pipe beside the handler, so that renewals and the runner's death are noticed while it runs."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(daemon=True, name="inbox")
        self._sock = sock
        self.jobs: thread_queue.SimpleQueue[dict[str, Any]] = thread_queue.SimpleQueue()
        self.lease: ChildLease | None = None

    def run(self) -> None:
        """Read until the runner is gone."""
        while True:
            frame = pipe.receive_blocking(self._sock)
            if frame is None:
                os.killpg(0, signal.SIGKILL)
                return
            message = frame[1]
            if message["type"] == "lease" and self.lease is not None:
                self.lease.end = message["end"]
            elif message["type"] == "job":
                self.jobs.put(message)


class Runner:
    """Runs jobs one after the other in the main thread: sync ones plainly, async ones in a loop that is kept."""

    def __init__(self, app: App, schema: str, pools: tuple[AsyncPool, SyncPool], inbox: Inbox) -> None:
        self._app = app
        self._schema = schema
        self._async, self._sync = pools
        self._inbox = inbox
        self._loop = asyncio.Runner()

    def run(self, message: dict[str, Any]) -> dict[str, Any]:
        """Run one job; return what to tell the runner."""
        told = message["claimed"]
        for name in ("leased_until", "enqueued_at", "due_at"):
            told[name] = datetime.fromisoformat(told[name])
        claimed = Claimed(**told)
        handler = self._app.find(claimed.kind, claimed.version)
        if handler is None:
            return {"type": "fault", "fault": faults.to_wire(faults.Fault("release", reason="unknown kind"))}
        lend = self._async.lend if handler.is_async else self._sync.lend
        lease = self._inbox.lease = ChildLease(claimed, self._schema, message["end"], lend)
        fault: Fault | None
        at = None
        try:
            fault = self._attempt(handler, claimed, lease)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is an outcome
            fault, at = faults.from_exception(error), faults.place(error)
        if fault is None:
            return {"type": "done", "acked": lease.acked}
        return {"type": "fault", "fault": faults.to_wire(fault), "acked": lease.acked, "at": at}

    def _attempt(self, handler: Handler, claimed: Claimed, lease: ChildLease) -> Fault | None:
        payload = claimed.payload
        if handler.payload_model is not None:
            try:
                payload = handler.payload_model.validate_python(payload)
            except ValidationError as error:
                return faults.invalid_payload(error)
        refusal = self._authorize(claimed, payload, lease)
        if refusal is not None:
            return refusal
        if handler.is_async:
            self._loop.run(handler.function(Job(claimed, payload, lease)), context=copy_context())
        else:
            faults.check_ran(copy_context().run(handler.function, SyncJob(claimed, payload, lease)))
        return None

    def _authorize(self, claimed: Claimed, payload: Any, lease: ChildLease) -> Fault | None:
        authorizer = self._app.authorizer
        if authorizer is None:
            return None
        try:
            if inspect.iscoroutinefunction(authorizer):
                own = ChildLease(claimed, self._schema, lease.end, self._async.lend)
                allowed = self._loop.run(authorizer(Job(claimed, payload, own)))
            else:
                own = ChildLease(claimed, self._schema, lease.end, self._sync.lend)
                allowed = authorizer(SyncJob(claimed, payload, own))
        except Exception as error:  # noqa: BLE001 - any refusal is one
            return faults.not_authorized(error)
        return faults.unless_allowed(allowed)


def main() -> None:
    """Serve one slot until the runner closes the pipe."""
    parser = argparse.ArgumentParser(prog="jobqueue.worker.child")
    parser.add_argument("--app", required=True)
    parser.add_argument("--pipe", required=True, type=int)
    arguments = parser.parse_args()
    sock = socket.socket(fileno=arguments.pipe)
    sock.set_inheritable(False)  # or a grandchild would keep the pipe open
    first = pipe.receive_blocking(sock)
    if first is None:
        return
    orders = Orders(**first[1]["orders"])
    logs.configure(orders, **{"class": orders.class_name, "worker": first[1]["worker"]})
    inbox = Inbox(sock)
    inbox.start()
    try:
        app = app_module.load(arguments.app)
    except ConfigurationError as error:
        sock.sendall(pipe.encode({"type": "fatal", "error": str(error)}))
        return
    info = database(orders)
    sock.sendall(pipe.encode({"type": "ready"}))
    runner = Runner(app, orders.schema_name, (AsyncPool(info, 1), SyncPool(info, 1)), inbox)
    while True:
        sock.sendall(pipe.encode(runner.run(inbox.jobs.get())))


if __name__ == "__main__":
    main()
