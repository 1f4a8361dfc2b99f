"""The images of the scenarios: there already, or built here and brought to the cluster as archives."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from e2e.clusters import run

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
_BUILD = 3600.0
"""Seconds that a build may take."""


@dataclass(frozen=True)
class Images:
    """Names that the cluster's nodes know."""

    operator: str
    worker: str
    """With the app of the scenarios in it."""


BUILT = Images("docker.io/library/jobqueue-operator:e2e", "docker.io/library/jobqueue-e2e:e2e")
"""Under full names, as nodes take them; not `latest`, which nodes would pull."""


def build(builder: str, base: str, folder: Path, load: Callable[[Path], object]) -> Images:
    """Build them, and `load` an archive of each, made in `folder`.

    `builder`: docker, podman or buildah, with its options; `base`: the image to build on, empty for the usual one.
    """
    program = shlex.split(builder)
    # ARGS is said again: a make around this one hands on what it was given.
    given = (f"BUILDER={builder}", f"BASE={base}", "ARGS=")
    run("make", "-C", str(ROOT), "images", *given, within=_BUILD)
    run(*program, "tag", "jobqueue-operator", BUILT.operator)
    run(*program, "build", "--tag", BUILT.worker, str(ROOT / "e2e" / "app"), within=_BUILD)
    for image in (BUILT.operator, BUILT.worker):
        archive = folder / "image.tar"
        archive.unlink(missing_ok=True)
        if Path(program[0]).name == "buildah":
            run(*program, "push", image, f"docker-archive:{archive}:{image}", within=_BUILD)
        else:
            run(*program, "save", "--output", str(archive), image, within=_BUILD)
        load(archive)
        archive.unlink(missing_ok=True)
    return BUILT


def loader(command: str) -> Callable[[Path], object]:
    """Return what brings an archive to a cluster: a command with {archive} in it."""
    if "{archive}" not in command:
        raise ValueError(f"--load-command {command!r} has no {{archive}} in it: the place of the archive's path")
    return lambda archive: run(*(part.format(archive=archive) for part in shlex.split(command)), within=_BUILD)
