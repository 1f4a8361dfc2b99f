"""When `up` ends by itself, and with which exit status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobqueue_operator.planner.facts import Facts, Phase

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from jobqueue_operator.up.report import Reporter

SOON = 60.0
"""Seconds: `--until-empty` waits for a job that is due within this, not for a later one."""
STUCK_AFTER = 5.0
"""Seconds that all that is left must be jobs nobody here can run, before that is an answer."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What was asked for. With neither, only a signal ends it."""

    after: float | None = None
    """Seconds."""
    when_empty: bool = False


class Verdict:
    """Decides after each tick. It remembers only since when nothing can move."""

    def __init__(self, ending: Ending, reporter: Reporter) -> None:
        self._ending = ending
        self._reporter = reporter
        self._stuck_since: float | None = None

    def of(
        self,
        names: Sequence[str],
        facts: Facts,
        soon: Mapping[str, int],
        looping: Mapping[str, str],
        *,
        pinned: Collection[str] = (),
        elapsed: float,
        now: float,
    ) -> int | None:
        """Return the exit status when it is time to end: 1 when jobs wait that nobody works on, or nobody comes up.

        `soon` counts jobs due soon, `looping` names classes whose workers do not come up and what they said, `pinned`
        those that the manifest pins to no worker: nobody waits for them.
        """
        if self._ending.after is not None and elapsed >= self._ending.after:
            return 1 if looping else 0
        if not self._ending.when_empty or not facts.visible:
            return None
        waiting = [
            name
            for name in names
            if (_waiting(facts, name) or soon.get(name)) and (name not in pinned or facts.classes[name].in_flight)
        ]
        if not waiting:
            for name in [name for name in pinned if _waiting(facts, name)]:
                self._reporter.say("warning", f"class {name} is pinned to 0: {_about(facts, name)} ready jobs stay")
            self._say_what_stays(names, facts)
            return 0
        failing = [name for name in waiting if name in looping]
        for name in failing:
            self._reporter.say("error", f"class {name}: jobs wait, and its workers do not come up: {looping[name]}")
        return 1 if failing else self._stuck(waiting, facts, now)

    def _stuck(self, waiting: Sequence[str], facts: Facts, now: float) -> int | None:
        # That workers of a class went, once they had not understood a job of it, gives no hope.
        if not all(_hopeless(facts, name, seen_before=self._stuck_since is not None) for name in waiting):
            self._stuck_since = None
            return None
        if self._stuck_since is None:
            self._stuck_since = now
        if now - self._stuck_since < STUCK_AFTER:
            return None
        for name in waiting:
            self._reporter.say(
                "error",
                f"class {name}: no worker here understands {_about(facts, name)} ready jobs; see "
                f"`jobqueue list --class {name} --status pending` and the kinds and versions of the app's handlers",
            )
        return 1

    def _say_what_stays(self, names: Sequence[str], facts: Facts) -> None:
        for name in names:
            seen = facts.classes.get(name)
            if seen is not None and seen.paused and seen.ready:
                self._reporter.say("warning", f"class {name} is paused: {seen.ready} ready jobs stay")
            if seen is not None and seen.scheduled:
                self._reporter.say("info", f"class {name}: {seen.scheduled} jobs are scheduled for later")


def _about(facts: Facts, name: str) -> str:
    seen = facts.classes[name]
    return f"about {seen.ready}" if seen.estimated else str(seen.ready)


def _waiting(facts: Facts, name: str) -> bool:
    """Whether a class has work that this run should see the end of."""
    seen = facts.classes.get(name)
    if seen is None:
        return False
    return seen.in_flight > 0 or (seen.ready > 0 and not seen.paused)


def _hopeless(facts: Facts, name: str, *, seen_before: bool) -> bool:
    """Whether all that is left of a class is what none of its workers, all of them up, understands."""
    seen = facts.classes.get(name)
    phases = {w.phase for w in facts.workers if w.class_ == name}
    if seen is None or phases & {Phase.STARTING, Phase.BACKOFF} or not (Phase.READY in phases or seen_before):
        return False
    return seen.in_flight == 0 and 0 < seen.ready <= seen.unsupported
