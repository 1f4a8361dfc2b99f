"""Explanations and replays as JSON. Moments are ISO 8601 in UTC, spans seconds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from jobqueue_operator.planner.plain import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobqueue_operator.planner.explain import Explanation
    from jobqueue_operator.planner.record import Remarks
    from jobqueue_operator.planner.replay import Comparison, Outcome
    from jobqueue_operator.planner.score import Score


def explanations(found: Sequence[Explanation], *, source: str, remarks: Remarks) -> dict[str, Any]:
    """Return `{"at", "source", "skipped", "remarks", "classes": […]}`."""
    classes = []
    for one in found:
        members = plain(one, defaults=True)
        del members["now"]
        pool = members.pop("pool")
        name = members.pop("class_")
        pool.pop("class_")
        classes.append({"class": name, **members, **pool})
    return {
        "at": moment(found[0].now) if found else None,
        "source": source,
        "skipped": remarks.skipped,
        "remarks": remarks.texts,
        "classes": classes,
    }


def outcome(found: Outcome, remarks: Remarks) -> dict[str, Any]:
    """Return `{"begin", "end", "ticks", "gaps", "left_out", "modelled", "skipped", "remarks", "classes": […]}`."""
    return {
        "begin": moment(found.begin),
        "end": moment(found.end),
        "ticks": found.ticks,
        "gaps": found.gaps,
        "left_out": found.left_out,
        "modelled": ["old", "new"],
        "skipped": remarks.skipped,
        "remarks": [*remarks.texts, *found.remarks],
        "classes": [_comparison(one) for one in found.classes],
    }


def moment(now: float) -> str:
    """Return seconds since the epoch as a moment."""
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")


def _comparison(one: Comparison) -> dict[str, Any]:
    return {
        "class": one.class_,
        "recorded": _score(one.recorded),
        "old": _score(one.old),
        "new": _score(one.new),
        "differences": [
            {**plain(d, defaults=True), "begin": moment(d.begin), "end": moment(d.end)} for d in one.differences
        ],
    }


def _score(score: Score) -> dict[str, Any]:
    return {
        "target": score.target,
        "seconds": score.seconds,
        "worker_seconds": score.worker_seconds,
        "peak": score.peak,
        "over_target": score.over_target,
        "share_over_target": score.share_over_target,
        "max_age": score.max_age,
        "actions": score.actions,
        "at_cap": score.at_cap,
    }
