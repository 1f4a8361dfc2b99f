"""A RabbitMQ broker of the tests' own: loopback only, with its own node name, ports, cookie and folders."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from services.required import missing

if TYPE_CHECKING:
    from collections.abc import Iterator

_STARTS_WITHIN = 90.0  # seconds; Erlang on a busy machine takes its time


@dataclass
class Broker:
    """`url` is that of the default user; the calls are what an operator or a bad day does to a broker."""

    url: str
    port: int
    program: str
    folder: Path
    environment: dict[str, str]
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and return when it takes connections."""
        with (self.folder / "output").open("ab") as output:
            self.process = subprocess.Popen(
                [self.program], env=self.environment, stdout=output, stderr=output, start_new_session=True
            )
        deadline = time.monotonic() + _STARTS_WITHIN
        while time.monotonic() < deadline and self.process.poll() is None:
            if self._greets():
                return
            time.sleep(0.1)
        self.kill()
        raise RuntimeError(f"RabbitMQ did not start:\n{(self.folder / 'output').read_text()[-2000:]}")

    def kill(self) -> None:
        """End it at once, as a crash does."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def freeze(self) -> None:
        """Keep every socket open and answer nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, number)

    def _greets(self) -> bool:
        """Tell whether it answers a wrong protocol header with its own, which it does once it has booted."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as peer:
            peer.settimeout(1)
            peer.sendall(b"NOTAMQP!")
            return peer.recv(4) == b"AMQP"
        return False


@contextlib.contextmanager
def rabbitmq() -> Iterator[Broker]:
    """Yield a running broker; skip visibly where RabbitMQ is not installed."""
    programs = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    program = str(programs[-1]) if programs else shutil.which("rabbitmq-server")
    epmd = shutil.which("epmd")
    if program is None or epmd is None:
        missing("rabbitmq", "rabbitmq-server or epmd is not installed")
    folder = Path(tempfile.mkdtemp(prefix="rabbitmq-"))
    port, dist_port, epmd_port = _free_ports(3)
    (folder / "plugins").write_text("[].")
    (folder / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n")
    environment = {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "HOME": str(folder),  # the cookie
        "RABBITMQ_NODENAME": f"jobqueue-{os.getpid()}@localhost",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_DIST_PORT": str(dist_port),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "generated"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none",
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }
    # Ours and in the foreground: one that the node starts itself outlives it as a daemon.
    names = subprocess.Popen([epmd, "-port", str(epmd_port), "-address", "127.0.0.1"])
    broker = Broker(f"amqp://guest:guest@127.0.0.1:{port}/", port, program, folder, environment)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
        names.terminate()
        names.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]
