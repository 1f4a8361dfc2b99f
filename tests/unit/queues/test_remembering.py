from collections.abc import Mapping
from typing import Any

import pytest

from jobqueue.errors import ConnectionFailed
from jobqueue_operator.planner.memory import ClassMemory
from jobqueue_operator.planner.plan import Decision, Plan, Pool, Reason
from jobqueue_operator.queues.remembering import EVERY, Memories


class Kept:
    """A queue that keeps what it is told, and a clock."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, Mapping[str, float]]] = []
        self.now = 0.0
        self.away = False

    async def remember(self, class_: str, memory: Mapping[str, float]) -> None:
        if self.away:
            raise ConnectionFailed("away")
        self.writes.append((class_, memory))


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def memories(kept: Kept) -> Memories:
    queue: Any = kept
    return Memories(queue, clock=lambda: kept.now)


def plan(prior: float | None, class_: str = "email", revision: str = "r") -> Plan:
    memory = ClassMemory(prior=prior)
    return Plan((Pool(class_, revision, Decision(1, Reason.DEMAND, ""), memory=memory),))


async def test_what_changed_notably_is_written_and_not_too_often(kept: Kept, memories: Memories) -> None:
    for seconds, prior in [(0, 1.0), (1, 2.0), (EVERY, 1.05), (EVERY + 1, 1.2), (EVERY + 2, 9.0), (2 * EVERY + 1, 9.0)]:
        kept.now = float(seconds)
        await memories.keep(plan(prior))
    assert [memory["prior"] for _, memory in kept.writes] == [1.0, 1.2, 9.0]


async def test_an_end_writes_whatever_the_time(kept: Kept, memories: Memories) -> None:
    await memories.keep(plan(1.0))
    await memories.keep(plan(2.0), last=True)
    await memories.keep(plan(2.1), last=True)
    assert [memory["prior"] for _, memory in kept.writes] == [1.0, 2.0]


async def test_nothing_known_and_classes_that_are_gone_are_not_written(kept: Kept, memories: Memories) -> None:
    await memories.keep(plan(None))
    await memories.keep(plan(1.0, revision=""))
    assert kept.writes == []


async def test_a_failure_is_tried_again_later(kept: Kept, memories: Memories) -> None:
    kept.away = True
    with pytest.raises(ConnectionFailed):
        await memories.keep(plan(1.0))
    kept.away = False
    await memories.keep(plan(1.0))
    assert kept.writes == [], "not at each tick"
    kept.now = EVERY
    await memories.keep(plan(1.0))
    assert kept.writes == [("email", {"prior": 1.0})]
