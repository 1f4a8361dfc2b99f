"""`python -m jobqueue.worker`: a worker configured by the environment alone."""

from __future__ import annotations

import sys

from jobqueue.errors import ConfigurationError
from jobqueue.worker.settings import load


def main() -> int:
    """Run a worker; returns its exit status."""
    try:
        settings = load()
    except ConfigurationError as error:
        print(f"jobqueue.worker: {error}", file=sys.stderr)  # noqa: T201 - a command's output
        return 2
    from jobqueue.worker.supervisor import main as supervise  # noqa: PLC0415 - settings are judged first, quickly

    return supervise(settings)


if __name__ == "__main__":
    sys.exit(main())
