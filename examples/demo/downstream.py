"""A stub of what the slow jobs lean on: a service that counts its callers, and how many it had at once at most."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedRWPair

ANSWER_AFTER = 0.03
"""Seconds that the service takes to answer a caller."""
PATIENCE = 10.0
"""Seconds that a caller waits for it."""


class Downstream(socketserver.ThreadingTCPServer):
    """The service. A caller says `enter`, works while it is connected, says `leave`, and is then told `bye`.

    A caller is counted from before its `welcome` to before its `bye`: who has been told `bye` is surely no longer
    counted, so a job that ends after that and one that starts afterwards are never seen together by mistake. A caller
    that is killed is counted until its connection breaks.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Caller)
        self.now = 0
        self.peak = 0
        self.calls = 0
        self.broken = 0
        self.lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.1,), name="downstream", daemon=True)

    @property
    def address(self) -> str:
        """Return host:port."""
        host, port = self.server_address[:2]
        return f"{host!s}:{port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Caller(socketserver.StreamRequestHandler):
    server: Downstream

    def handle(self) -> None:
        if self.rfile.readline() != b"enter\n":
            return
        with self.server.lock:
            self.server.now += 1
            self.server.calls += 1
            self.server.peak = max(self.server.peak, self.server.now)
        left = False
        try:
            time.sleep(ANSWER_AFTER)
            self.wfile.write(b"welcome\n")
            left = self.rfile.readline() == b"leave\n"
        except OSError:
            pass  # the caller was killed
        finally:
            with self.server.lock:
                self.server.now -= 1
                self.server.broken += not left
        if left:
            self.wfile.write(b"bye\n")


@contextmanager
def session(address: str) -> Iterator[None]:
    """Be a caller of the service at host:port for as long as the block runs. OSError when it cannot be reached."""
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=PATIENCE) as connection,
        connection.makefile("rwb") as line,
    ):
        _say(line, b"enter\n", b"welcome\n")
        yield
        _say(line, b"leave\n", b"bye\n")


def _say(line: BufferedRWPair, words: bytes, expected: bytes) -> None:
    line.write(words)
    line.flush()
    answer = line.readline()
    if answer != expected:
        raise ConnectionError(f"the downstream answered {answer!r} to {words!r}")
