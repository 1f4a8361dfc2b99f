from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from e2e import images
from e2e.clusters import Kind

if TYPE_CHECKING:
    from pathlib import Path

RECORDER = """#!/bin/sh
printf '%s\\n' "$*" >> {calls}
exit {status}
"""
OPERATOR, WORKER = images.BUILT.operator, images.BUILT.worker


class Stub:
    """A program that writes down how it was called."""

    def __init__(self, folder: Path, name: str, status: int = 0) -> None:
        self.path = folder / name
        self._calls = folder / f"{name}.calls"
        self.path.write_text(RECORDER.format(calls=self._calls, status=status))
        self.path.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines()


def scenarios(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run one scenario in a pytest of its own, which knows no cluster but what it is told."""
    variables = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"} | environment
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "e2e", "-k", "apply", *options]
    return subprocess.run(command, cwd=images.ROOT, env=variables, capture_output=True, text=True, check=False)


def test_a_cluster_of_kinds_is_made_loaded_and_taken_away(tmp_path: Path) -> None:
    stub = Stub(tmp_path, "kind")
    kind = Kind("e2e-1", tmp_path / "config", str(stub.path))
    kind.create()
    kind.load(tmp_path / "image.tar")
    kind.delete()
    assert stub.calls == [
        f"create cluster --name e2e-1 --kubeconfig {tmp_path}/config --wait 180s",
        f"load image-archive {tmp_path}/image.tar --name e2e-1",
        f"delete cluster --name e2e-1 --kubeconfig {tmp_path}/config",
    ]


def test_a_program_that_fails_is_told_with_its_command(tmp_path: Path) -> None:
    stub = Stub(tmp_path, "kind", status=3)
    with pytest.raises(AssertionError, match=r"create cluster --name e2e-1 .* ended with 3"):
        Kind("e2e-1", tmp_path / "config", str(stub.path)).create()


@pytest.mark.parametrize(
    ("builder", "archive"),
    [("docker", "save --output {archive} {image}"), ("buildah", "push {image} docker-archive:{archive}:{image}")],
)
def test_images_are_built_and_each_is_loaded_from_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, builder: str, archive: str
) -> None:
    monkeypatch.setenv("MAKEFLAGS", " -- ARGS=--kind")  # as under `make e2e ARGS=--kind`
    stub = Stub(tmp_path, builder)
    loaded: list[Path] = []
    assert images.build(str(stub.path), "python:3", tmp_path, loaded.append) == images.BUILT
    file = tmp_path / "image.tar"
    assert loaded == [file, file]
    assert stub.calls == [
        "build --build-arg BASE=python:3 --file worker_image/Dockerfile --tag jobqueue-worker .",
        "build --build-arg BASE=python:3 --file operator/Dockerfile --tag jobqueue-operator .",
        f"tag jobqueue-operator {OPERATOR}",
        f"build --tag {WORKER} {images.ROOT}/e2e/app",
        archive.format(archive=file, image=OPERATOR),
        archive.format(archive=file, image=WORKER),
    ]


def test_a_load_command_gets_the_archive(tmp_path: Path) -> None:
    stub = Stub(tmp_path, "load")
    images.loader(f"{stub.path} --from '{{archive}}' now")(tmp_path / "image.tar")
    assert stub.calls == [f"--from {tmp_path}/image.tar now"]
    with pytest.raises(ValueError, match=r"has no \{archive\} in it"):
        images.loader("load it")


def test_a_cluster_is_taken_away_when_its_images_cannot_be_built(tmp_path: Path) -> None:
    kind = Stub(tmp_path, "kind")
    Stub(tmp_path, "docker", status=1)
    ran = scenarios("--kind", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert [call.split()[0] for call in kind.calls] == ["create", "delete"]


@pytest.mark.parametrize(
    ("options", "said"), [((), "which cluster?"), (("--kubeconfig", "/nonexistent"), "which images?")]
)
def test_what_is_missing_is_asked_for(options: tuple[str, ...], said: str) -> None:
    ran = scenarios(*options)
    assert ran.returncode != 0
    assert said in ran.stdout + ran.stderr
