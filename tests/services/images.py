"""The project's images, built with buildah on a base made of this machine's own Debian packages: nothing is pulled.

Images and layers stay in build/images, so that a second build takes seconds. `python3 tests/services/images.py` builds
them beforehand, with nothing but the standard library.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
WORKER, OPERATOR, SHOP = "jobqueue-worker", "jobqueue-operator", "shop-worker"

_STORE = ROOT / "build" / "images"
# What python:3.11-slim has of these: an interpreter with venv, a shell and the usual small tools.
_PACKAGES = (
    "base-files",
    "coreutils",
    "dash",
    "findutils",
    "grep",
    "libc-bin",
    "python3",
    "python3-venv",
    "sed",
    "tar",
)
_LEFT_OUT = re.compile(r"/usr/share/(doc|info|locale|man|perl)/")
_PIP_SETTINGS = {"cert", "extra-index-url", "index-url", "proxy", "timeout", "trusted-host"}


class Images:
    """The images of one store."""

    def __init__(self) -> None:
        self.buildah = ["buildah", "--root", str(_STORE / "root"), "--runroot", str(_STORE / "run")]
        self.base = ""
        """The base's name, once `build` has run."""

    def build(self) -> None:
        """Build the base, both images by `make images`, and the example's image on top of the worker's."""
        self.base = f"localhost/debian-{_state_of_the_machine()}"
        if self._run("inspect", "--type", "image", self.base, check=False).returncode != 0:
            self._build_base()
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as settings:
            settings.write(_pip_settings())
            settings.flush()
            extra = f"--layers --secret id=pip,src={settings.name}"
            _call("make", "images", f"BUILDER={' '.join(self.buildah)}", f"BASE={self.base}", f"ARGS={extra}")
        self._run("build", "--layers", "--tag", SHOP, str(ROOT / "examples" / "shop"))

    def config(self, image: str) -> dict[str, Any]:
        """Return an image's configuration: User, Env, Entrypoint, WorkingDir."""
        found: dict[str, Any] = json.loads(self._run("inspect", "--type", "image", image).stdout)["OCIv1"]["config"]
        return found

    def mount(self, image: str) -> Path:
        """Make a container of an image and return the folder that its root is mounted at."""
        container = self._run("from", "--pull-never", image).stdout.strip()
        return Path(self._run("mount", container).stdout.strip())

    def close(self) -> None:
        """Remove all containers; the images stay."""
        self._run("umount", "--all")
        self._run("rm", "--all")

    def _build_base(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(Path(folder, "root.tar"), "w") as tar:
                _add_packages(tar)
                for name in ("passwd", "group"):
                    tar.add(f"/usr/share/base-passwd/{name}.master", f"/etc/{name}")
                for certificates in _certificates():
                    tar.add(os.path.realpath(certificates), certificates)
            Path(folder, "Dockerfile").write_text("FROM scratch\nADD root.tar /\n")
            self._run("build", "--tag", self.base, folder)

    def _run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return _call(*self.buildah, *arguments, check=check)


def _call(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    # Without a container runtime's help: this works wherever root may chroot.
    environment = {"BUILDAH_ISOLATION": "chroot", **os.environ}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if check and ran.returncode != 0:
        raise AssertionError(
            f"{' '.join(command)} ended with {ran.returncode}:\n{ran.stdout[-3000:]}{ran.stderr[-3000:]}"
        )
    return ran


def _state_of_the_machine() -> str:
    """Return a word that is another one when the base would be another one."""
    listed = _call("dpkg-query", "--show").stdout + Path(__file__).read_text()
    return hashlib.sha256(listed.encode()).hexdigest()[:12]


def _add_packages(tar: tarfile.TarFile) -> None:
    added = set()
    for link in ("/bin", "/lib", "/lib64", "/sbin"):
        if Path(link).is_symlink():
            tar.add(link)
            added.add(link)
    for listed in _call("dpkg-query", "--listfiles", *_closure()).stdout.splitlines():
        path = os.path.join(os.path.realpath(os.path.dirname(listed)), os.path.basename(listed))  # noqa: PTH118, PTH119, PTH120
        if listed.startswith("/") and path not in added and os.path.lexists(path) and not _LEFT_OUT.match(path):
            added.add(path)
            tar.add(path, recursive=False)


def _closure() -> list[str]:
    """Return the names of `_PACKAGES` and of all that they depend on."""
    needs: dict[str, str] = {}
    providers: dict[str, str] = {}
    shown = "${Package}\t${db:Status-Status}\t${Pre-Depends},${Depends}\t${Provides}\n"
    for line in _call("dpkg-query", "--show", "--showformat", shown).stdout.splitlines():
        name, status, depends, provides = line.split("\t")
        if status == "installed":
            needs[name] = depends
            providers |= dict.fromkeys(re.findall(r"[a-z0-9][a-z0-9+.-]+", provides), name)
    found: set[str] = set()
    todo = list(_PACKAGES)
    while todo:
        name = todo.pop()
        if name in needs and name not in found:
            found.add(name)
            for either in needs[name].split(","):
                names = [re.split(r"[ (:]", each.strip())[0] for each in either.split("|")]
                installed = [each if each in needs else providers.get(each) for each in names]
                todo += [each for each in installed if each is not None][:1]
    return sorted(found)


def _settings() -> dict[str, str]:
    """Return what pip is told on this machine, by its files and by the environment."""
    # The pip that venv brings along: a bare machine has no other, and it reads what every pip reads.
    pip = next(Path("/usr/share/python-wheels").glob("pip-*.whl"))
    found: dict[str, str] = {}
    for line in _call("/usr/bin/python3", str(pip / "pip"), "config", "list").stdout.splitlines():
        name, _, value = line.partition("=")
        key = name.rpartition(".")[2]
        reachable = [each for each in value.strip("'").split() if not each.startswith("file:")]
        if key in _PIP_SETTINGS and reachable:
            found[key] = " ".join(reachable)
    return found


def _pip_settings() -> str:
    return "[global]\n" + "".join(f"{key} = {value}\n" for key, value in _settings().items())


def _certificates() -> set[str]:
    usual = "/etc/ssl/certs/ca-certificates.crt"
    return {path for path in (usual, _settings().get("cert", usual)) if Path(path).exists()}


if __name__ == "__main__":
    Images().build()
