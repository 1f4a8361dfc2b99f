"""The order in which a plan is carried out, and what a queue that does not answer half-way leaves undone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobqueue.errors import ConnectionFailed, StaleEpoch
from jobqueue.signals import DatabaseSnapshot, Snapshot, WorkerSnapshot
from jobqueue_operator.planner.facts import DownstreamFacts, Facts, Phase, WorkerFacts
from jobqueue_operator.planner.plan import Allocation, Decision, Plan, Pool, Reason, Victim
from jobqueue_operator.queues.carry_out import Executor
from jobqueue_operator.queues.gather import LeadershipLost, Sight, check_lead
from jobqueue_operator.queues.saying import Level

NOW = datetime(2026, 1, 2, tzinfo=UTC)


class World:
    """A queue, a platform and a reporter that note what they are asked, in one list."""

    epoch = 7

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.said: list[str] = []
        self.failing: dict[str, Exception] = {}
        self.held: dict[int, int] = {}

    def _note(self, what: str, *details: Any) -> None:
        if what in self.failing:
            raise self.failing[what]
        self.done.append((what, *details))

    async def retire(self, workers: Sequence[int]) -> Mapping[int, int]:
        self._note("retire", list(workers))
        return {w: self.held.get(w, 0) for w in workers}

    async def take_back(self, workers: Sequence[int]) -> Sequence[int]:
        self._note("take back", list(workers))
        return workers

    async def limit(self, downstream: str, units: int) -> None:
        self._note("limit", downstream, units)

    async def apply(self, _plan: Plan, workers: Sequence[WorkerFacts] = ()) -> None:
        self._note("apply", {w.name: w.phase for w in workers})

    def say(self, level: Level, message: str, **_details: object) -> None:
        self.said.append(f"{level}: {message}")


@pytest.fixture
def world() -> World:
    return World()


def worker(name: str, phase: Phase) -> WorkerFacts:
    return WorkerFacts(name=name, class_="email", phase=phase, revision="r", age=60.0)


def entry(id_: int, name: str, state: str, ago: float = 50.0) -> WorkerSnapshot:
    return WorkerSnapshot(
        id=id_, name=f"{name}/boot-1", class_="email", state=state, slots=4, units=0, in_flight=0,
        registered_at=NOW - timedelta(seconds=ago), seen_age_seconds=0.1, info={},
    )  # fmt: skip


WORKERS = (worker("a", Phase.READY), worker("b", Phase.READY), worker("c", Phase.RETIRED), worker("d", Phase.RETIRED))
SNAPSHOT = Snapshot(
    now=NOW,
    classes=(),
    # Of a, the registration of a process before the one it has now is there as well.
    workers=(entry(1, "a", "active"), entry(2, "b", "active"), entry(3, "c", "retired"), entry(4, "d", "retired"),
             entry(9, "a", "active", ago=90)),
    downstreams=(),
    database=DatabaseSnapshot(7, "me", 0, None, {}, {}, 0),
)  # fmt: skip
FACTS = Facts(workers=WORKERS, downstreams={"db": (DownstreamFacts(limit=10),), "api": (DownstreamFacts(limit=5),)})
SIGHT = Sight(FACTS, SNAPSHOT)


def plan(**fields: Any) -> Plan:
    pool = Pool("email", "r", Decision(3, Reason.DEMAND, ""), **fields)
    allocations = tuple(
        Allocation(downstream=name, ceiling=10, limit=units, in_use=0, reason=Reason.SPEC_LIMIT, message="",
                   limits={"": units, "elsewhere": 99})
        for name, units in (("db", 8), ("api", 5))
    )  # fmt: skip
    return Plan((pool,), allocations)


async def carry_out(world: World, plan_: Plan, sight: Sight = SIGHT) -> Facts:
    everything: Any = world  # what the executor needs of queue, platform and reporter, and no more
    return await Executor(everything, everything, everything).carry_out(plan_, sight)


def retire(name: str) -> tuple[Victim, ...]:
    return (Victim(name, Reason.IDLE_FIRST, ""),)


async def test_who_is_needed_again_comes_first_and_the_platform_last(world: World) -> None:
    world.held = {1: 2}
    facts = await carry_out(world, plan(retire=retire("a"), take_back=("c",)))
    assert world.done == [
        ("take back", [3]),
        ("retire", [1]),
        ("limit", "db", 8),
        ("apply", {"a": Phase.RETIRED, "b": Phase.READY, "c": Phase.READY, "d": Phase.RETIRED}),
    ]
    assert next(w for w in facts.workers if w.name == "a").busy == 2, "what the queue counted after the fence"


async def test_nothing_to_write_writes_nothing(world: World) -> None:
    same = replace(plan(), downstreams=plan().downstreams[1:])
    await carry_out(world, same)
    assert [what for what, *_ in world.done] == ["apply"]


@pytest.mark.parametrize("what", ["take back", "retire", "limit"])
async def test_a_queue_that_fails_half_way_leaves_the_platform_alone(world: World, what: str) -> None:
    world.failing[what] = ConnectionFailed("the database did not answer")
    facts = await carry_out(world, plan(retire=retire("a"), take_back=("c",)))
    assert "apply" not in [done for done, *_ in world.done]
    assert facts is FACTS
    assert world.said == ["warning: the plan is carried out later: the database did not answer"]


@pytest.mark.parametrize("what", ["take back", "retire", "limit"])
async def test_who_does_not_lead_any_more_stops_at_once(world: World, what: str) -> None:
    world.failing[what] = StaleEpoch("epoch: 7 is over, 'up@other:1' leads this database with epoch 8")
    with pytest.raises(LeadershipLost, match="up@other"):
        await carry_out(world, plan(retire=retire("a"), take_back=("c",)))
    assert "apply" not in [done for done, *_ in world.done]


async def test_blind_the_platform_holds_by_what_it_knew(world: World) -> None:
    blind = Sight(Facts(visible=False, workers=WORKERS), None)
    await carry_out(world, plan(), blind)
    assert world.done == [("apply", {})]


def test_another_epoch_in_the_database_is_another_leader() -> None:
    check_lead(7, SNAPSHOT)
    check_lead(7, None)
    check_lead(None, SNAPSHOT)
    with pytest.raises(LeadershipLost, match="me leads it with epoch 7, ours is 6"):
        check_lead(6, SNAPSHOT)
