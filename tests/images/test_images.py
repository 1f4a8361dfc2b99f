"""What the images are made of, looked at from outside."""

from __future__ import annotations

import importlib.util
import os
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from services.images import OPERATOR, SHOP, WORKER

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.containers import Container
    from services.images import Images

pytestmark = pytest.mark.timeout(900)  # the first of them builds

Roots = Any  # what the fixture `roots` gives

MIB = 1024 * 1024
USER = 65532
COMPILERS = {"cc", "c++", "gcc", "g++", "clang", "ld", "make"}


def files(root: Path) -> dict[str, os.stat_result]:
    """Everything below a root, links not followed, by its path in the image."""
    found = {}
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = Path(folder, name)
            found["/" + str(path.relative_to(root))] = path.lstat()
    return found


def size(root: Path) -> int:
    return sum(each.st_size for each in files(root).values() if stat.S_ISREG(each.st_mode))


@pytest.mark.parametrize("image", [WORKER, OPERATOR])
def test_an_image_adds_less_than_200_mb_to_its_base(images: Images, roots: Roots, image: str) -> None:
    added = size(roots(image)) - size(roots(images.base))
    assert 10 * MIB < added < 200 * MIB
    print(f"{image}: {added / MIB:.0f} MiB over its base")  # noqa: T201 - a figure for the log


@pytest.mark.parametrize(
    ("image", "entrypoint"), [(WORKER, "jobqueue"), (OPERATOR, "jobqueue-operator"), (SHOP, "jobqueue")]
)
def test_an_image_runs_one_command_as_a_user_that_is_a_number_and_not_root(
    images: Images, image: str, entrypoint: str
) -> None:
    config = images.config(image)
    assert config["User"] == f"{USER}:{USER}"
    assert config["Entrypoint"] == [entrypoint]
    assert {"PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1"} <= set(config["Env"])


@pytest.mark.parametrize("image", [WORKER, OPERATOR, SHOP])
def test_the_user_can_write_nowhere_but_where_everybody_can(roots: Roots, image: str) -> None:
    found = [
        path
        for path, each in files(roots(image)).items()
        if not stat.S_ISLNK(each.st_mode)
        and not (stat.S_ISDIR(each.st_mode) and each.st_mode & stat.S_ISVTX)  # /tmp and its like
        and (each.st_mode & stat.S_IWOTH or USER in {each.st_uid, each.st_gid})
    ]
    assert found == []


@pytest.mark.parametrize("image", [WORKER, OPERATOR])
def test_what_built_an_image_is_not_in_it(images: Images, roots: Roots, image: str) -> None:
    added = set(files(roots(image))) - set(files(roots(images.base)))
    assert {path for path in added if Path(path).name in COMPILERS} == set()
    assert {path for path in added if not path.startswith(("/opt", "/app"))} == set()
    assert (roots(image) / "etc" / "passwd").read_text().endswith("jobqueue:x:65532:65532::/tmp:/usr/sbin/nologin\n")


@pytest.mark.parametrize(
    ("image", "uncompiled"), [(WORKER, "nothing of it"), (OPERATOR, "/site-packages/kubernetes/client/")]
)
def test_every_module_is_compiled_as_it_is(roots: Roots, image: str, uncompiled: str) -> None:
    stale = []
    modules = [
        path for path in (roots(image) / "opt" / "jobqueue" / "lib").rglob("*.py") if uncompiled not in str(path)
    ]
    assert len(modules) > 500
    for module in modules:
        compiled = Path(importlib.util.cache_from_source(str(module), optimization=""))
        compiled = compiled.with_name(f"{module.stem}.cpython-311.pyc")
        written = module.stat()
        header = compiled.read_bytes()[8:16] if compiled.exists() else b""
        if header != struct.pack("<II", int(written.st_mtime), written.st_size & 0xFFFFFFFF):
            stale.append(str(module))
    # Templates of code that no Python reads are left.
    assert [path for path in stale if "lib2to3" not in path] == []


def test_packages_of_an_image_on_top_install_beside_the_worker(roots: Roots) -> None:
    assert (roots(WORKER) / "opt/jobqueue/bin/pip").exists()
    assert not (roots(OPERATOR) / "opt/jobqueue/bin/pip").exists()


@pytest.mark.parametrize(("image", "word"), [(WORKER, "drain"), (SHOP, "drain")])
def test_help_needs_nothing_but_the_image(start: Callable[..., Container], image: str, word: str) -> None:
    container = start(image, "--help")
    assert container.process.wait() == 0
    assert word in container.process.text


def test_the_operator_starts_and_says_that_it_finds_no_cluster(start: Callable[..., Container]) -> None:
    container = start(OPERATOR)
    assert container.process.wait(within=60) == 2
    assert "no way to an API server" in container.process.text
    assert "Traceback" not in container.process.text
