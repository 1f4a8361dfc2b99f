"""What only some of a class's workers understand while it is queued: what a rollout must not leave without a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jobqueue import queue
from jobqueue.signals import decode

if TYPE_CHECKING:
    from integration.queue.stage import Stage, Worker

OLD, BOTH, NEW = ("render", 1), ("mail", 1), ("render", 2)


@pytest.fixture
def two(direct: Stage) -> tuple[Worker, Worker]:
    """An old worker and a new one, in the middle of a rollout."""
    return direct.worker(kinds=[OLD, BOTH]), direct.worker(kinds=[NEW, BOTH])


def contested(stage: Stage) -> dict[tuple[str, int], tuple[int, set[int]]]:
    found = decode(queue.snapshot(stage.conn)).versions
    assert all(v.class_ == "c" for v in found)
    return {(v.kind, v.version): (v.jobs, set(v.lacking)) for v in found}


def test_what_is_queued_and_some_lack_is_named_with_those_who_do(direct: Stage, two: tuple[Worker, Worker]) -> None:
    old, new = two
    assert contested(direct) == {}, "nothing is queued"
    for kind, version in (OLD, OLD, BOTH, NEW, ("unheard", 1)):
        direct.enqueue(kind=kind, version=version)
    assert contested(direct) == {OLD: (2, {new.id}), NEW: (1, {old.id})}


def test_it_counts_whatever_may_come_back(direct: Stage, two: tuple[Worker, Worker]) -> None:
    """Another priority, for later, parked, in flight, its lease expired: none of these has ended."""
    old, new = two
    direct.enqueue(kind="render", priority=7)
    direct.enqueue_bulk(1, kind="render", run_after="2099-01-01")
    running, waiting = (direct.enqueue(kind="render", concurrency_key="k", priority=9) for _ in range(2))
    [job] = old.claim(max_jobs=1)
    assert job.id == running
    assert contested(direct) == {OLD: (4, {new.id})}
    direct.expire(running)
    assert contested(direct) == {OLD: (4, {new.id})}
    queue.cancel(direct.conn, waiting)
    assert contested(direct) == {OLD: (3, {new.id})}
    direct.admin.execute("DELETE FROM jobqueue.ready")
    assert contested(direct) == {OLD: (1, {new.id})}
    direct.sweep()
    direct.admin.execute("DELETE FROM jobqueue.ready")
    assert contested(direct) == {}


def test_only_workers_that_claim_count(direct: Stage, two: tuple[Worker, Worker]) -> None:
    old, new = two
    direct.enqueue(kind="render")
    silent = direct.worker(kinds=[])
    assert contested(direct) == {OLD: (1, {new.id})}, "one that has not said what it understands says nothing"
    queue.retire_worker(direct.conn, None, [old.id, silent.id])
    assert contested(direct) == {}, "nobody who claims understands it: no rollout can keep one"


def test_the_answer_is_bounded_and_names_first_what_the_oldest_workers_understand(direct: Stage) -> None:
    old = direct.worker(kinds=[("z", n) for n in range(3)])
    direct.worker(kinds=[("a", n) for n in range(50)])
    for kind, count in (("a", 50), ("z", 3)):
        for version in range(count):
            direct.enqueue(kind=kind, version=version)
    direct.enqueue_bulk(1_500, kind="z", version=0)
    found = decode(queue.snapshot(direct.conn)).versions
    assert len(found) == 20
    assert [(v.kind, v.version) for v in found[:4]] == [("z", 0), ("z", 1), ("z", 2), ("a", 0)]
    assert (found[0].jobs, found[1].jobs) == (1_000, 1)
    assert found[3].lacking == {old.id}
