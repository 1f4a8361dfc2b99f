"""A few workers come up at a time, however many are asked for at once."""

from __future__ import annotations

import asyncio

MOST = 8
"""Workers that come up at once at most: each is two processes that import an application, on one machine's cores."""
WITHIN = 10.0
"""Seconds after which a worker that has not come up no longer holds others up."""


class Turn:
    """One worker's permission to come up. It ends when told, or when its time is over."""

    def __init__(self, places: asyncio.Semaphore, seconds: float) -> None:
        self._places: asyncio.Semaphore | None = places
        self._timer = asyncio.get_running_loop().call_later(seconds, self.end)

    def end(self) -> None:
        """Let the next one come up. Ending twice is harmless."""
        places, self._places = self._places, None
        self._timer.cancel()
        if places is not None:
            places.release()


class Turns:
    """Gives out turns, in the order they were asked for."""

    def __init__(self, *, most: int = MOST, within: float = WITHIN) -> None:
        self._places = asyncio.Semaphore(most)
        self._within = within

    async def take(self, unless: asyncio.Event) -> Turn | None:
        """Wait for a turn; None when `unless` is set before there is one."""
        taking = asyncio.ensure_future(self._places.acquire())
        giving_up = asyncio.ensure_future(unless.wait())
        try:
            await asyncio.wait({taking, giving_up}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            giving_up.cancel()
        if not taking.done():
            taking.cancel()
            return None
        turn = Turn(self._places, self._within)
        if unless.is_set():
            turn.end()
            return None
        return turn
