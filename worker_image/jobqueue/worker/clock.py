"""The one clock of a worker: seconds since boot, suspended time included, the same for all its processes.

Leases are the database's; a worker only measures how long ago it sent the request that renewed one. CLOCK_BOOTTIME
goes on while the machine sleeps and is not moved by anyone who sets the time.
"""

from __future__ import annotations

import time


def now() -> float:
    """Seconds since boot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
