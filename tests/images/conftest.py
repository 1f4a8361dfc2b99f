"""Fixtures: the images built once, and containers of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from services.containers import Container
from services.images import Images
from services.required import is_required, missing, require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from services.processes import Process


@pytest.fixture(scope="session")
def images() -> Iterator[Images]:
    """The images, built from the sources as they are. Minutes on a cold store: only where they are asked for."""
    if not is_required("buildah"):
        pytest.skip("buildah: building the images takes a minute or two; `make images-test` does")
    require("buildah")
    require("runc")
    if os.geteuid() != 0:
        missing("buildah", "needs root, to mount what it built")
    made = Images()
    made.build()
    yield made
    made.close()


@pytest.fixture(scope="session")
def roots(images: Images) -> Callable[[str], Path]:
    """The folder where an image's files are, by the image's name; each mounted once."""
    mounted: dict[str, Path] = {}

    def root(image: str) -> Path:
        if image not in mounted:
            mounted[image] = images.mount(image)
        return mounted[image]

    return root


@pytest.fixture
def start(
    images: Images, roots: Callable[[str], Path], run: Callable[..., Process], tmp_path: Path
) -> Iterator[Callable[..., Container]]:
    """Start a container: `start(image, "worker", …, env=…, volumes=…)`. All are gone at the end."""
    started: list[Container] = []

    def begin(image: str, *arguments: str, **options: Any) -> Container:
        container = Container(run, roots(image), images.config(image), tmp_path, *arguments, **options)
        started.append(container)
        return container

    yield begin
    for container in started:
        container.close()
