"""How long a worker that died waits before it is started again, as a kubelet does it, on a laptop's scale."""

from __future__ import annotations

FIRST = 1.0
"""Seconds before the second start after an early death; it doubles from there."""
MOST = 30.0
"""Seconds between two starts, at most."""
SETTLED = 10.0
"""A worker that lived this long (seconds) starts again at once: its death was no failure to come up."""
LOOPING = 3
"""Early deaths in a row that are called a crash loop."""


class CrashBackoff:
    """Counts early deaths in a row."""

    def __init__(self) -> None:
        self.early_deaths = 0

    @property
    def looping(self) -> bool:
        """Whether this worker is not coming up at all."""
        return self.early_deaths >= LOOPING

    def after_death(self, lived: float) -> float:
        """Note a death after `lived` seconds, and return how many seconds to wait before the next start."""
        if lived >= SETTLED:
            self.early_deaths = 0
            return 0.0
        self.early_deaths += 1
        if self.early_deaths == 1:
            return 0.0
        return float(min(FIRST * 2.0 ** min(self.early_deaths - 2, 30), MOST))
