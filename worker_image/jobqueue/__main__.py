"""`python -m jobqueue` is `jobqueue`."""

import sys

from jobqueue.cli import main

sys.exit(main())
