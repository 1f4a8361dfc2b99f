"""The command `jobqueue`.

Exit status: 0 done, 1 the operation failed, 2 usage, configuration or input is wrong. Errors are one line on standard
error (with --json: one JSON object), never a traceback. Heavy imports happen inside the commands that need them.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status."""
    if os.getpid() == 1:
        # The kernel gives a container's first process no default action: a command would wait out the grace period.
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        from jobqueue.cli.commands import build  # noqa: PLC0415 - the extra may be missing
        from jobqueue.cli.failure import run  # noqa: PLC0415
    except ModuleNotFoundError as error:
        sys.stderr.write(f"error: the command line needs {error.name}: pip install 'jobqueue-operator[cli]'\n")
        return 2
    arguments = list(sys.argv[1:] if argv is None else argv)
    return run(lambda: build(arguments), arguments, name="jobqueue", as_json="--json" in arguments)
