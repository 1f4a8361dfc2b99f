"""What `jobqueue explain` does with its options."""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jobqueue import connect, queue, signals
from jobqueue.cli.failure import Refused
from jobqueue.cli.place import connection
from jobqueue.cli.writing import printable, write, write_json
from jobqueue_operator.explain import answer, live, recorded, table, words
from jobqueue_operator.planner.explain import Explanation
from jobqueue_operator.planner.explain import explain as explained
from jobqueue_operator.planner.record import Remarks, Tick
from jobqueue_operator.planner.replay import replay as replayed
from jobqueue_operator.up.wanted import wanted
from jobqueue_operator.workload import load

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

RECORD = Path(".jobqueue/decisions.jsonl")
"""Where `jobqueue up` records, unless told otherwise."""
MANIFEST = Path("jobqueue.yaml")
LIVE = "asked anew: what the running operator remembers, its scale-in windows above all, is in its own record"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where decisions come from, as far as it was said."""

    manifest: Path | None
    dsn: str | None
    dsn_dir: Path | None
    schema: str
    file: Path | None
    at: datetime | None
    tick: float
    """Live: seconds between two looks."""

    @property
    def live(self) -> bool:
        """Whether a live queue is meant: a record is, when one is named or when nothing says where a queue is."""
        if self.file is not None or self.at is not None:
            return False
        return bool(self.dsn) or self.dsn_dir is not None or connect.is_named()


def explain(place: Place, class_: str | None, *, as_json: bool) -> None:
    """Explain the decision for one class, or for all. Raises Refused, and what the queue's calls raise."""
    remarks = Remarks()
    found = _live(place) if place.live else recorded.nearest(place.file or RECORD, place.at, remarks)
    names = [pool.class_ for pool in found.plan.pools]
    if class_ is not None and class_ not in names:
        raise Refused(f"class: there is no class {class_!r}", hint=f"the classes are: {', '.join(names)}")
    tell(found, names if class_ is None else [class_], remarks, live=place.live, as_json=as_json)


def tell(found: Tick, classes: Iterable[str], remarks: Remarks, *, live: bool, as_json: bool) -> None:
    """Write what one tick decided for some of its classes."""
    explanations = [e for e in (explained(found, name) for name in classes) if e is not None]
    if as_json:
        write_json(answer.explanations(explanations, source="live" if live else "record", remarks=remarks))
        return
    _write(explanations)
    if live:
        write("")
        write(LIVE)
    _say(remarks.texts, remarks.skipped)


def replay(file: Path, spec: Path, *, as_json: bool) -> None:
    """Compare a new spec with the recorded one. Raises Refused, and ManifestError with all problems of the spec."""
    workload = load(spec)
    remarks = Remarks()
    gc.disable()  # a tick makes thousands of objects and no cycles: a tenth of the time
    try:
        found = replayed(recorded.ticks(file, remarks), wanted(workload, {each.name: "" for each in workload.classes}))
    finally:
        gc.enable()
    if not found.ticks:
        raise recorded.empty(file, remarks)
    known, there = [spec.name for spec in workload.classes], [one.class_ for one in found.classes]
    if not {*known} & {*there}:
        raise Refused(
            f"{spec}: none of its classes ({', '.join(known)}) is in the record",
            hint=f"the record has: {', '.join(there) or 'none that was seen'}; give the class its recorded name",
        )
    if as_json:
        write_json(answer.outcome(found, remarks))
        return
    for text in table.lines(found):
        write(text)
    _say([*remarks.texts, *found.remarks], remarks.skipped)


def _live(place: Place) -> Tick:
    manifest = place.manifest or MANIFEST
    workload = load(manifest)
    with connection(place.dsn, place.dsn_dir, place.schema) as conn:
        seen = signals.decode(queue.snapshot(conn, tick=place.tick, schema=place.schema))
    registered = {each.class_ for each in seen.classes}
    if missing := [spec.name for spec in workload.classes if spec.name not in registered]:
        raise Refused(
            f"{manifest}: the queue has no class {', '.join(missing)}",
            hint=f"jobqueue up registers classes when it starts, and jobqueue migrate --manifest {manifest}",
        )
    return live.tick(seen, workload, place.tick)


def _write(explanations: Iterable[Explanation]) -> None:
    for position, explanation in enumerate(explanations):
        if position:
            write("")
        for text in words.lines(explanation):
            write(text)


def _say(remarks: Iterable[str], skipped: int) -> None:
    """Say on standard error what was wrong with a record: it is no part of the answer."""
    if skipped:
        sys.stderr.write(f"warning: lines left out: {skipped}\n")
    for text in remarks:
        sys.stderr.write(f"warning: {printable(text)}\n")
