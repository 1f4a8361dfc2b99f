"""`python -m jobqueue_operator.plugin` is `kubectl jobqueue`."""

import sys

from jobqueue_operator.plugin import main

sys.exit(main())
