"""The runner process as the supervisor holds it: spawned by exec, told and heard over a pipe, killed with its group."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from jobqueue.worker.board import Board
from jobqueue.worker.killing import kill_orphans, kill_tree
from jobqueue.worker.pipe import Pipe

_PAGE = os.sysconf("SC_PAGE_SIZE")


class RunnerProcess:
    """One incarnation."""

    def __init__(self, process: asyncio.subprocess.Process, channel: Pipe, board: Board) -> None:
        self.process = process
        self.pipe = channel
        self.board = board

    @classmethod
    async def spawn(cls, slots: int, start: dict[str, Any]) -> RunnerProcess:
        """Start a runner and tell it what to do."""
        board = Board.create(slots)
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "jobqueue.worker.runner",
                "--pipe",
                str(theirs.fileno()),
                "--board",
                str(board.descriptor),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), board.descriptor),
                start_new_session=True,
            )
        finally:
            theirs.close()
        channel = await Pipe.over(ours)
        channel.send(type="start", slots=slots, **start)
        return cls(process, channel, board)

    def memory(self) -> int:
        """Resident bytes, 0 when it is gone."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * _PAGE
        return 0

    async def kill(self) -> None:
        """End it with everything it started; returns when all of it is dead."""
        if self.process.returncode is None:
            kill_tree(self.process.pid)
        await self.process.wait()
        await asyncio.to_thread(kill_orphans, set())

    def how(self) -> str:
        """Say how it ended."""
        code = self.process.returncode or 0
        if code >= 0:
            return f"exited with status {code}"
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
        return f"killed by signal {-code}"

    def close(self) -> None:
        """Let go of its pipe and board."""
        self.pipe.close()
        self.board.close()
