"""Wake-up by the timeout alone. The other kinds are this one plus something that calls `wake`."""

from __future__ import annotations

import asyncio
import contextlib
import random

JITTER = 0.25  # share of the timeout; workers that slept together must not poll together


class PollingWakeup:
    """A level-triggered bell: `wake` sets it; `wait` returns when it is set or time is up, and clears it."""

    def __init__(self, *, rng: random.Random | None = None) -> None:
        self._bell = asyncio.Event()
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing

    async def start(self) -> None:
        """Nothing to start."""

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109 - a bound on sleeping, not on an operation
        """Return when woken, or after 75 to 100 % of `timeout` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout * (1 - JITTER * self._rng.random())):
                await self._bell.wait()
        self._bell.clear()

    def wake(self) -> None:
        """Make the current `wait`, or the next one, return at once."""
        self._bell.set()

    async def stop(self) -> None:
        """Wake a `wait` under way; there is nothing else to end."""
        self.wake()
