"""A worker's outside, with no queue behind it: socket, drain, signals. Behaviour is told by STUB_* variables."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path


def note(text: str) -> None:
    with Path(os.environ["STUB_NOTES"]).open("a") as file:
        file.write(f"{os.environ['JOBQUEUE_WORKER_NAME']} {text}\n")


def worker() -> None:
    mode = os.environ.get("STUB_MODE", "")
    if mode == "bad-app":
        sys.stderr.write("ModuleNotFoundError: No module named 'shop'\n")
        sys.exit(2)
    ended = threading.Event()
    terms = []
    held = []

    def term(*_: object) -> None:
        terms.append(1)
        note(f"term{len(terms)}")
        if mode != "stubborn" or len(terms) > 1:
            ended.set()

    signal.signal(signal.SIGTERM, term)
    if mode == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if mode == "children":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
        note(f"child {child.pid}")
    server = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(OSError):
        Path(os.environ["JOBQUEUE_DRAIN_SOCKET"]).unlink()
    server.bind(os.environ["JOBQUEUE_DRAIN_SOCKET"])
    server.listen()
    server.settimeout(0.05)
    note("up")
    while not ended.is_set():
        try:
            connection, _ = server.accept()
        except TimeoutError:
            continue
        note("drain")
        if mode != "slow-drain":
            connection.close()
        else:
            held.append(connection)
    note("exit")


def drain() -> None:
    client = socket.socket(socket.AF_UNIX)
    client.connect(os.environ["JOBQUEUE_DRAIN_SOCKET"])
    client.recv(1)


if __name__ == "__main__":
    {"worker": worker, "drain": drain}[sys.argv[1]]()
