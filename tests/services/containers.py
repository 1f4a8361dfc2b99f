"""Containers of the project's images, run by runc as a cluster would run them: restricted, on a read-only root."""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from services.processes import Process

_numbers = itertools.count(1)


class Container:
    """One container: its first process is the image's entrypoint. Its network is this machine's."""

    def __init__(
        self,
        run: Callable[..., Process],
        root: Path,
        config: Mapping[str, Any],
        folder: Path,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        volumes: Mapping[str, Path] | None = None,
    ) -> None:
        """Start it. `root` and `config` are the image's; `volumes` are folders of this machine, read-only, by place."""
        self._runc = ["runc", "--root", str(folder / "runc")]
        self._name = f"jobqueue-test-{next(_numbers)}"
        bundle = folder / self._name
        bundle.mkdir()
        user, group = map(int, config["User"].split(":"))
        scratch = ["nosuid", "nodev", "noexec", f"uid={user}", f"gid={group}"]
        binds = [
            {"destination": place, "type": "bind", "source": str(source), "options": ["rbind", "ro", "nosuid"]}
            for place, source in (volumes or {}).items()
        ]
        spec = {
            "ociVersion": "1.0.2",
            "hostname": "pod",
            "process": {
                "user": {"uid": user, "gid": group},
                "args": [*config["Entrypoint"], *arguments],
                "env": [*config["Env"], *(f"{name}={value}" for name, value in (env or {}).items())],
                "cwd": config.get("WorkingDir") or "/",
                "capabilities": {},
                "noNewPrivileges": True,
            },
            "root": {"path": str(root), "readonly": True},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
                {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["mode=1777"]},  # noqa: S108
                {"destination": "/tmp", "type": "tmpfs", "source": "tmp", "options": scratch},  # noqa: S108
                {"destination": "/run/jobqueue", "type": "tmpfs", "source": "run", "options": scratch},
                *binds,
            ],
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")]},
        }
        (bundle / "config.json").write_text(json.dumps(spec))
        self.process = run(*self._runc, "run", "--bundle", bundle, self._name)

    def processes(self) -> dict[int, str]:
        """Return the state (R, S, Z, …) of each process in it, by its id on this machine, PID 1 first."""
        found = {}
        first = self.first()
        for pid in [first, *_children(first)]:
            try:
                found[pid] = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
        return found

    def first(self) -> int:
        """Return this machine's process id of its PID 1."""
        state = subprocess.run([*self._runc, "state", self._name], capture_output=True, text=True, check=True)
        pid: int = json.loads(state.stdout)["pid"]
        return pid

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run one more command in it, as a preStop hook is run."""
        return subprocess.run(
            [*self._runc, "exec", self._name, *command], capture_output=True, text=True, timeout=60, check=False
        )

    def close(self) -> None:
        """Kill what is left of it."""
        subprocess.run([*self._runc, "delete", "--force", self._name], capture_output=True, check=False)


def _children(pid: int) -> list[int]:
    return [
        int(each)
        for task in Path(f"/proc/{pid}/task").glob("*/children")
        for each in task.read_text().split()
    ]  # fmt: skip
