"""How often to try again, and how often to speak of it, while a server is away."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable


class Backoff:
    """Full-jitter exponential delays, in seconds. `next` grows them, `reset` starts over after a success."""

    def __init__(self, *, initial: float = 0.5, longest: float = 30.0, rng: random.Random | None = None) -> None:
        self._initial = initial
        self._longest = longest
        self._ceiling = initial
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing

    def next(self) -> float:
        """Return the delay before the next try: between a tenth of the current ceiling and all of it."""
        ceiling = self._ceiling
        self._ceiling = min(ceiling * 2, self._longest)
        return ceiling * self._rng.uniform(0.1, 1.0)

    def reset(self) -> None:
        """Start over from the initial delay."""
        self._ceiling = self._initial


class Outage:
    """Log an outage at a bounded rate: its start, at most one line each `every` seconds, its end."""

    def __init__(
        self,
        logger: logging.Logger,
        subject: str,
        *,
        every: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._subject = subject
        self._every = every
        self._clock = clock
        self._said_at: float | None = None
        self._unsaid = 0
        self._said = False  # in the outage under way

    def failed(self, reason: object) -> None:
        """Count a failed try, and say so when the last line is old enough. `reason` must hold no secret."""
        now = self._clock()
        if self._said_at is not None and now - self._said_at < self._every:
            self._unsaid += 1
            return
        more = f" ({self._unsaid} more failures since the last line)" if self._unsaid else ""
        self._logger.warning("%s: %s%s; polling goes on", self._subject, reason, more)
        self._said_at, self._unsaid, self._said = now, 0, True

    def over(self) -> None:
        """Say that it works again, if a line said that it did not."""
        if self._said:
            self._logger.info("%s: works again", self._subject)
        self._said = False
