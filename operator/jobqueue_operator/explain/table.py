"""A replay's outcome as lines for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from jobqueue.cli.writing import printable, show_seconds, show_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobqueue_operator.planner.replay import Comparison, Outcome
    from jobqueue_operator.planner.score import Difference, Score

HEAD = ("", "WORKER-SECONDS", "PEAK", "TARGET", "OVER TARGET", "MAX AGE", "ACTIONS", "AT CAP")


def lines(found: Outcome) -> Iterator[str]:
    """Write a table a class, and when the two specs differ most."""
    yield (
        f"{found.ticks} decisions from {_moment(found.begin)} to {_moment(found.end)}"
        + (f"; {found.gaps} gaps of {show_seconds(found.left_out)} together are left out" if found.gaps else "")
    )
    yield "Modelled: jobs as a fluid, workers with the recorded start delay, both specs on the same recorded arrivals"
    yield "and lengths. Compare new with old; recorded is there to judge the model by."
    for one in found.classes:
        yield ""
        yield printable(one.class_)
        yield from _table(one)
        if one.differences:
            yield "  differ most:"
            for difference in one.differences:
                yield f"    {_difference(difference)}"


def _table(one: Comparison) -> Iterator[str]:
    rows: list[Sequence[str]] = [HEAD]
    for name, score in (("recorded", one.recorded), ("old spec (modelled)", one.old), ("new spec (modelled)", one.new)):
        rows.append((name, *_cells(score, one.old)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        yield "  " + "  ".join(cells).rstrip()


def _cells(score: Score, old: Score) -> tuple[str, ...]:
    if not score.seconds:
        return ("-",) * (len(HEAD) - 1)
    ratio = f" ({score.worker_seconds / old.worker_seconds:.2f}x)" if old.worker_seconds else ""
    return (
        f"{score.worker_seconds:.0f}{ratio}",
        str(score.peak),
        show_seconds(score.target),
        f"{100 * score.share_over_target:.2f} %",
        show_seconds(score.max_age),
        str(score.actions),
        show_seconds(score.at_cap),
    )


def _difference(found: Difference) -> str:
    return (
        f"{_moment(found.begin)} for {show_seconds(found.end - found.begin)}: workers {found.new} instead of "
        f"{found.old}, oldest job {show_seconds(found.new_age)} instead of {show_seconds(found.old_age)}"
    )


def _moment(now: float) -> str:
    return show_time(datetime.fromtimestamp(now, UTC))
