"""Ending processes for good: a process, its group, and whatever it started that left the group."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Have orphaned descendants handed to this process instead of init, so that none is left behind."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Be killed by the kernel when the parent's main thread ends, however it ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def children(pid: int) -> list[int]:
    """List the direct children of a process."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    """List a process's children, their children, and so on."""
    found: list[int] = []
    todo = [pid]
    while todo:
        below = children(todo.pop())
        found += below
        todo += below
    return found


def kill_tree(pid: int) -> None:
    """SIGKILL a process that leads a group, its group, and every descendant. The caller reaps it."""
    below = descendants(pid)  # before the kill: orphans no longer say whose they were
    _kill_group(pid)
    for each in below:
        _kill_group_of(each)
        _kill(each)


def kill_orphans(known: set[int]) -> None:
    """SIGKILL and reap every child of this process that is not `known`, with its group, until none is left."""
    for _ in range(100):  # each round may orphan more; nobody can fork faster than this for long
        strangers = [each for each in children(os.getpid()) if each not in known]
        if not strangers:
            return
        for each in strangers:
            kill_tree(each)
            _kill_group_of(each)
            _kill(each)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(each, 0)


def reap_orphans(known: set[int]) -> None:
    """Collect dead children that were handed to this process; the living are left alone."""
    for each in children(os.getpid()):
        if each not in known:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(each, os.WNOHANG)


def _kill_group(group: int) -> None:
    if group != os.getpgrp():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def _kill_group_of(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        _kill_group(os.getpgid(pid))


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
