"""The demo's input: real files under a folder, bounded so that the whole demo ends within its time."""

from __future__ import annotations

import os
import random
import stat
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote_to_bytes

FILES_MOST = 400
"""Files worked on."""
BYTES_MOST = 10 * 2**20
"""Bytes of them, together: compressing a MiB takes a third of a second."""
FILE_MOST = 2 * 2**20
"""Bytes of one file: a longer one would hold its slot for seconds."""
LOOKED_AT_MOST = 100_000
"""Files that are looked at before choosing: a home directory may have millions."""
INSTALLED = {"site-packages", "dist-packages"}
"""Folders inside the standard library's that are not the standard library."""


class NoInput(Exception):  # noqa: N818 - reads as a fact
    """There is nothing to work on. The message says why, and what to do."""


@dataclass(frozen=True)
class File:
    """One file as it was when the demo began. `uri` survives JSON whatever bytes the name is made of."""

    uri: str
    size: int
    changed_ns: int

    @property
    def path(self) -> Path:
        """Where it is."""
        return path_of(self.uri)

    def unchanged(self) -> bool:
        """Whether it is still what it was."""
        try:
            now = self.path.lstat()
        except OSError:
            return False
        return (now.st_size, now.st_mtime_ns) == (self.size, self.changed_ns)


@dataclass
class Input:
    """What was found, what was chosen of it, and why the rest was not."""

    folder: Path
    files: list[File] = field(default_factory=list)
    found: int = 0
    empty: int = 0
    unreadable: list[str] = field(default_factory=list)
    too_large: int = 0
    by_lot: int = 0
    cut_off: bool = False

    @property
    def size(self) -> int:
        """Bytes of the chosen files."""
        return sum(file.size for file in self.files)

    def remarks(self) -> list[str]:
        """Say what was left out, one line each."""
        lines = []
        if self.cut_off:
            lines.append(f"the folder has more than {LOOKED_AT_MOST:,} files; the others were not looked at")
        if self.too_large:
            lines.append(f"left out {self.too_large:,} larger than {FILE_MOST // 2**20} MiB")
        if self.unreadable:
            more = f" and {len(self.unreadable) - 1:,} more" if len(self.unreadable) > 1 else ""
            lines.append(f"left out what cannot be read: {self.unreadable[0]!r}{more}")
        if self.by_lot:
            lines.append(f"left out {self.by_lot:,} by lot, so that this ends within two minutes")
        if self.empty:
            lines.append(f"{self.empty:,} of the chosen are empty files; they are hashed and compressed like others")
        return lines


def readable(size: int) -> str:
    """Write a number of bytes for people."""
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{-(-size // 1024):,} KiB"


def path_of(uri: str) -> Path:
    """Return the path that a file URI names, with the very bytes of its name."""
    return Path(os.fsdecode(unquote_to_bytes(uri.removeprefix("file://"))))


def gather(given: str | None) -> Input:
    """Choose the files below `given`, or below the standard library's folder. Links are not followed.

    The choice is the same in every run. Raises NoInput.
    """
    folder = Path(given or sysconfig.get_path("stdlib")).absolute()
    if not folder.is_dir():
        raise NoInput(f"DEMO_DIR={folder} is not a folder; name one with files in it")
    found = Input(folder)
    candidates = _look(found, skip=set() if given else INSTALLED)
    random.Random(0).shuffle(candidates)  # noqa: S311 - a fair choice, not a secret
    room = BYTES_MOST
    for file in candidates:
        if len(found.files) >= FILES_MOST or file.size > room:
            found.by_lot += 1
        elif not _readable(file.path):
            found.unreadable.append(str(file.path))
        else:
            found.files.append(file)
            room -= file.size
    found.empty = sum(file.size == 0 for file in found.files)
    if not found.files:
        why = "; ".join(found.remarks()) or "it holds no regular file"
        raise NoInput(f"DEMO_DIR={folder}: there is nothing to work on: {why}; name a folder with files in it")
    return found


def _look(found: Input, skip: set[str]) -> list[File]:
    candidates = []
    for parent, folders, names in os.walk(found.folder, onerror=lambda e: found.unreadable.append(str(e.filename))):
        folders[:] = sorted(name for name in folders if name not in skip)
        for name in sorted(names):
            path = Path(parent, name)
            try:
                about = path.lstat()
            except OSError:
                continue  # gone since it was listed
            if not stat.S_ISREG(about.st_mode):
                continue
            found.found += 1
            if about.st_size > FILE_MOST:
                found.too_large += 1
            else:
                candidates.append(File(path.as_uri(), about.st_size, about.st_mtime_ns))
            if found.found >= LOOKED_AT_MOST:
                found.cut_off = True
                return candidates
    return candidates


def _readable(path: Path) -> bool:
    try:
        with path.open("rb"):
            return True
    except OSError:
        return False
