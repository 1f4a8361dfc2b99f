"""`kubectl jobqueue`: why a JobQueue has the workers it has, and what a person may do about it.

Everything is asked and done with the user's own login to the cluster. Exit status and errors are those of `jobqueue`:
0 done, 1 it could not be done, 2 usage or configuration is wrong, one line on standard error. Heavy imports happen
inside the commands that need them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

INSTALL = "pip install 'jobqueue-operator[kubectl]'"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status."""
    try:
        from jobqueue.cli.failure import run  # noqa: PLC0415 - the extra may be missing
        from jobqueue_operator.plugin.commands import build  # noqa: PLC0415
    except ModuleNotFoundError as error:
        sys.stderr.write(f"error: kubectl jobqueue needs {error.name}: {INSTALL}\n")
        return 2
    arguments = list(sys.argv[1:] if argv is None else argv)
    wanted = {"--json", "-ojson", "--output=json", "json"}
    return run(build, arguments, name="kubectl jobqueue", as_json=not wanted.isdisjoint(arguments))
