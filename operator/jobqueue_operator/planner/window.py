"""When fewer workers are enough: only after that has held for a while, longer where it was wrong before.

Two windows. For `W` seconds the steady load must have needed fewer: that keeps a wave from starting and stopping the
same workers. For `W_B` seconds nothing at all may have needed more. W doubles when workers are wanted again soon after
some went, and halves again when that has not happened for a while.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jobqueue_operator.planner.memory import ClassMemory, Past

if TYPE_CHECKING:
    from jobqueue_operator.resources.job_class import Behavior

BRIEF_LEAST = 15.0
FIRST_LEAST = 20.0
SOON_LEAST = 60.0
"""Seconds within which an up after a down is soon, however short W is: a backlog may take that long to build up."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How patient scale-in is."""

    most: float
    """Seconds that W grows to."""
    halve_after: float
    """Seconds without a doubling after which W halves; multiplied by W where `in_windows`."""
    in_windows: bool = False


MANNERS: dict[Behavior, Manner] = {
    "Default": Manner(most=120.0, halve_after=300.0),
    "Calm": Manner(most=300.0, halve_after=6.0, in_windows=True),
}


def brief(start_delay: float, tick: float, window: float) -> float:
    """Return W_B: a worker that is stopped and wanted again costs a start. Where that happened lately, W has grown."""
    return max(BRIEF_LEAST, start_delay + 2.0 * tick, window / 3.0 if window > first(start_delay) else 0.0)


def first(start_delay: float) -> float:
    """Return what W begins with, and never falls below."""
    return max(FIRST_LEAST, start_delay)


def remember(memory: ClassMemory, now: float, steady: int, peak: int, *, longest: float) -> tuple[Past, ...]:
    """Return the past with this tick in it. Entries from the future (a clock was set back) and too old ones go."""
    new = Past(now, steady, peak)
    kept = (p for p in memory.past if now - longest <= p.at <= now and not (p.steady <= steady and p.peak <= peak))
    return (*kept, new)


def keep(past: tuple[Past, ...], now: float, *, window: float, brief_window: float) -> int:
    """Return how many workers the windows keep: the most that the load needed in W, and anything did in W_B."""
    steady = max((p.steady for p in past if p.at >= now - window), default=0)
    peak = max((p.peak for p in past if p.at >= now - brief_window), default=0)
    return max(steady, peak)


def current(memory: ClassMemory, now: float, *, start_delay: float, manner: Manner) -> tuple[float, float]:
    """Return W as it is now, halved where it is due, and since when."""
    least = first(start_delay)
    window = min(max(memory.window if memory.window is not None else least, least), max(manner.most, least))
    since = memory.window_at if memory.window_at is not None and memory.window_at <= now else now
    pause = manner.halve_after * (window if manner.in_windows else 1.0)
    if now - since >= pause:
        return max(window / 2.0, least), now
    return window, since


def moved(memory: ClassMemory, before: int, after: int, now: float, *, manner: Manner) -> ClassMemory:
    """Return the memory after the number went from `before` to `after`: an up soon after a down doubles W."""
    if after < before:
        return replace(memory, down_at=now)
    if after == before or memory.down_at is None or memory.window is None:
        return memory
    if not 0 <= now - memory.down_at <= max(2.0 * memory.window, SOON_LEAST):
        return replace(memory, down_at=None)
    return replace(
        memory, window=min(2.0 * memory.window, max(manner.most, memory.window)), window_at=now, down_at=None
    )
