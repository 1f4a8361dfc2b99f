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
    try:
        from jobqueue.cli.commands import build  # noqa: PLC0415 - the extra may be missing
        from jobqueue.cli.failure import report  # noqa: PLC0415
    except ModuleNotFoundError as error:
        sys.stderr.write(f"error: the command line needs {error.name}: pip install 'jobqueue-operator[cli]'\n")
        return 2
    arguments = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in arguments
    try:
        status = build(arguments)(arguments, prog_name="jobqueue", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader has gone (| head); leave nothing to flush at exit, and be as quiet as any filter.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except Exception as error:  # noqa: BLE001 - sorted into one line and a status
        return report(error, as_json=as_json)
    return status if isinstance(status, int) else 0
