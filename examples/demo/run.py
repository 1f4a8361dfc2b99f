"""The demo: the whole product at work on real files, and its claims checked. `make demo` runs this.

DEMO_DIR names the folder whose files are worked on; the standard library of this Python by default. Everything happens
in a temporary folder: an embedded PostgreSQL, `jobqueue up` with this folder's manifest, and a stub of a downstream.

Exit status: 0 when every check holds, 1 when one does not, 2 when there is nothing to work on, 130 when interrupted.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import scenes
from downstream import Downstream
from inputs import Input, NoInput, gather
from load import Load
from narrate import Narrator
from product import CommandFailed, Up

from jobqueue.errors import JobQueueError
from jobqueue_operator.up.embedded import EmbeddedPostgres

if TYPE_CHECKING:
    from types import FrameType


def main() -> int:
    """Play the demo and return its exit status."""
    narrator = Narrator()
    interruption = Interruption()
    try:
        found = gather(os.environ.get("DEMO_DIR"))
    except KeyboardInterrupt:
        return 130
    except NoInput as nothing:
        narrator.error(str(nothing))
        return 2
    state = Path(tempfile.mkdtemp(prefix="jobqueue-demo-"))
    status = 1
    try:
        status = _play(narrator, interruption, found, state)
    except KeyboardInterrupt:
        narrator.error("interrupted; everything was stopped")
        status = 130
    except (scenes.Broken, CommandFailed, JobQueueError, psycopg.Error, subprocess.SubprocessError, OSError) as error:
        narrator.error(f"the demo broke off: {error}")
    finally:
        narrator.still()
        _tidy(narrator, state, keep=status == 1)
    return status


def _play(narrator: Narrator, interruption: Interruption, found: Input, state: Path) -> int:
    scenes.introduce(narrator, found)
    with ExitStack() as stack:
        server = EmbeddedPostgres(state / "postgres")
        stack.callback(server.stop)
        dsn = server.start()
        conn = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        downstream = stack.enter_context(Downstream())
        up = Up(dsn, state, {"DEMO_DOWNSTREAM": downstream.address})
        stack.callback(up.kill_survivors)
        stack.callback(up.stop)
        interruption.up = up
        stage = scenes.Stage(narrator, found, conn, up, downstream, Load(found.files))
        try:
            return scenes.play(stage)
        finally:
            interruption.ending = True  # what is left is to end everything, and must not be cut short


class Interruption:
    """Ctrl-C, SIGTERM and SIGHUP end the demo in its order; a second one makes the workers give their jobs back."""

    def __init__(self) -> None:
        self.up: Up | None = None
        self.ending = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._interrupt)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if not self.ending:
            self.ending = True
            raise KeyboardInterrupt
        if self.up is not None:
            self.up.hurry()


def _tidy(narrator: Narrator, state: Path, *, keep: bool) -> None:
    """Remove the temporary folder; after a failure, all of it but the logs."""
    shutil.rmtree(state / "postgres", ignore_errors=True)
    if keep and any(state.rglob("*.log")):
        narrator.error(f"the logs of what ran are in {state}")
    else:
        shutil.rmtree(state, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
