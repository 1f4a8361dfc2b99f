"""The stop sequence, restarts and leftovers of the local platform, on real processes."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from jobqueue_operator.planner.facts import Phase, WorkerFacts
from jobqueue_operator.planner.plan import Decision, Plan, Pool, Reason, RolloutStep, Victim
from jobqueue_operator.platforms import Event, Happening
from jobqueue_operator.platforms.local import LocalPlatform, Template, survivors, turns

STUB = Path(__file__).with_name("stub_worker.py")
PATIENCE = 20.0


class World:
    """A platform of stub workers and what they noted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes_file = folder / "notes"
        self.notes_file.touch()
        self.platform = LocalPlatform(folder / "state", {})
        self.seen: list[Event] = []

    def use(self, mode: str = "", grace: float = 10.0, class_: str = "email") -> Template:
        template = Template(
            class_=class_,
            command=(sys.executable, str(STUB), "worker"),
            drain_command=(sys.executable, str(STUB), "drain"),
            environment={"STUB_NOTES": str(self.notes_file), "STUB_MODE": mode, "PATH": os.environ["PATH"]},
            directory=self.folder,
            grace=grace,
        )
        self.platform.templates = {**self.platform.templates, class_: template}
        return template

    async def want(self, replicas: int, *victims: str, class_: str = "email") -> None:
        decision = Decision(replicas, Reason.MINIMUM_REPLICAS, "")
        gone = tuple(Victim(v, Reason.IDLE_FIRST, "") for v in victims)
        await self.platform.apply(Plan((Pool(class_, "", decision, stop=gone),)))

    async def told(self, phase: Phase, *names: str, replicas: int, rollout: str = "") -> None:
        """Have the plan applied after the queue told the phase of these workers."""
        step = RolloutStep(Victim(rollout, Reason.ROLLING, ""), Reason.ROLLING, "") if rollout else None
        seen = [replace(w, phase=phase) for w in await self.workers() if w.name in names]
        decision = Decision(replicas, Reason.DEMAND, "")
        await self.platform.apply(Plan((Pool("email", "", decision, rollout=step),)), seen)

    async def names(self) -> list[str]:
        return [w.name for w in await self.workers()]

    def notes(self) -> list[str]:
        return [line.split(" ", 1)[1] for line in self.notes_file.read_text().splitlines()]

    def events(self, happening: Happening) -> list[Event]:
        self.seen += self.platform.events()
        return [e for e in self.seen if e.happening is happening]

    async def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"waited {PATIENCE:g}s for {what}: {self.notes()} {self.seen}"
            await asyncio.sleep(0.02)

    async def workers(self) -> tuple[WorkerFacts, ...]:
        return await self.platform.observe()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    yield world
    world.platform.release_now()
    await world.platform.close()
    for process in psutil.Process().children(recursive=True):
        assert str(STUB) not in process.cmdline()


async def test_a_stop_drains_first_then_terminates(world: World) -> None:
    world.use()
    await world.want(1)
    await world.until(lambda: "up" in world.notes(), "a worker")
    await world.platform.close()
    assert world.notes() == ["up", "drain", "term1", "exit"]
    assert [e.message for e in world.events(Happening.DRAINED)] == ["drained"]
    assert await world.workers() == ()


async def test_a_drain_that_cannot_run_still_terminates(world: World) -> None:
    template = world.use()
    world.platform.templates = {"email": replace(template, drain_command=("/no/such/program",))}
    await world.want(1)
    await world.until(lambda: "up" in world.notes(), "a worker")
    await world.platform.close()
    assert world.notes() == ["up", "term1", "exit"]


async def test_a_drain_that_takes_too_long_is_cut_and_the_worker_still_gets_its_term(world: World) -> None:
    world.use("slow-drain", grace=1.0)
    await world.want(1)
    await world.until(lambda: "up" in world.notes(), "a worker")
    began = time.monotonic()
    await world.platform.close()
    assert world.notes() == ["up", "drain", "term1", "exit"]
    assert time.monotonic() - began < 5.0


async def test_a_worker_that_ignores_everything_is_killed_when_the_grace_is_over(world: World) -> None:
    world.use("deaf", grace=1.0)
    await world.want(1)
    await world.until(lambda: "up" in world.notes(), "a worker")
    await world.platform.close()
    assert world.events(Happening.KILLED)
    assert "exit" not in world.notes()


async def test_releasing_sends_a_second_term_instead_of_waiting(world: World) -> None:
    world.use("stubborn", grace=60.0)
    await world.want(1)
    await world.until(lambda: "up" in world.notes(), "a worker")
    closing = asyncio.create_task(world.platform.close())
    await world.until(lambda: "term1" in world.notes(), "the first term")
    world.platform.release_now()
    await asyncio.wait_for(closing, PATIENCE)
    assert world.notes()[-2:] == ["term2", "exit"]


async def test_a_killed_worker_is_started_again_and_leaves_no_child(world: World) -> None:
    world.use("children")
    await world.want(1)
    await world.until(lambda: "up" in world.notes(), "a worker")
    child = int(world.notes()[0].split()[1])
    (name, pid) = next(iter(world.platform.process_ids().items()))
    os.kill(pid, signal.SIGKILL)
    await world.until(lambda: world.notes().count("up") == 2, "the second start")
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
    (worker,) = await world.workers()
    assert (worker.name, worker.restarts) == (name, 1)
    assert world.events(Happening.DIED)[0].message == "killed by signal 9"


async def test_one_that_never_comes_up_backs_off_and_says_why(world: World) -> None:
    world.use("bad-app")
    await world.want(1)
    await world.until(lambda: world.events(Happening.LOOPING), "the crash loop")
    (worker,) = await world.workers()
    assert worker.phase is Phase.BACKOFF
    assert worker.last_error == "ModuleNotFoundError: No module named 'shop'"
    assert world.events(Happening.DIED)[0].message == f"exit status 2: {worker.last_error}"


async def test_a_command_that_does_not_exist_is_a_death_like_any_other(world: World) -> None:
    world.platform.templates = {"email": replace(world.use(), command=("/no/such/program",))}
    await world.want(1)
    await world.until(lambda: world.events(Happening.LOOPING), "the crash loop")
    assert "No such file" in world.events(Happening.DIED)[0].message


async def test_a_victim_goes_and_only_then_another_comes(world: World) -> None:
    world.use("slow-drain", grace=1.0)
    await world.want(2)
    await world.until(lambda: world.notes().count("up") == 2, "two workers")
    victim = (await world.workers())[0].name
    await world.want(2, victim)
    await world.want(2)
    assert [w.phase for w in await world.workers()] == [Phase.DRAINING, Phase.STARTING]
    await world.until(lambda: world.events(Happening.DRAINED), "the victim's end")
    await world.want(2)
    await world.until(lambda: world.notes().count("up") == 3, "the new worker")
    assert victim not in {w.name for w in await world.workers()}


async def test_a_retired_worker_does_not_count_until_it_is_taken_back(world: World) -> None:
    world.use()
    await world.want(2)
    await world.until(lambda: world.notes().count("up") == 2, "two workers")
    first, second = await world.names()
    await world.told(Phase.RETIRED, first, replicas=1)
    assert await world.names() == [first, second], "retired, it goes on"
    await world.told(Phase.RETIRED, first, replicas=2)
    assert len(await world.names()) == 3, "the plan asks for two beside it"
    await world.want(2)
    assert len(await world.names()) == 3, "what is not told again still holds"
    await world.told(Phase.READY, first, replicas=3)
    assert len(await world.names()) == 3, "taken back, it is one of the three"


async def test_a_retired_worker_is_not_waited_for_while_it_drains_and_a_replaced_one_is(world: World) -> None:
    world.use("slow-drain", grace=1.0)
    await world.want(2)
    await world.until(lambda: world.notes().count("up") == 2, "two workers")
    first, second = await world.names()
    await world.told(Phase.RETIRED, first, replicas=1)
    await world.want(1, first)
    assert await world.names() == [first, second]
    await world.want(2)
    assert len(await world.names()) == 3
    await world.told(Phase.READY, replicas=2, rollout=second)
    await world.told(Phase.READY, replicas=2)
    assert len(await world.names()) == 3, "one out, one in"
    await world.until(lambda: len(world.events(Happening.DRAINED)) == 2, "both to be gone")
    await world.want(2)
    assert len(await world.names()) == 2


async def test_a_retired_worker_that_dies_is_not_started_again(world: World) -> None:
    world.use()
    await world.want(2)
    await world.until(lambda: world.notes().count("up") == 2, "two workers")
    first, second = await world.names()
    await world.told(Phase.RETIRED, first, replicas=1)
    os.kill(world.platform.process_ids()[first], signal.SIGKILL)
    await world.until(lambda: world.events(Happening.GONE), "its end")
    assert [(e.worker, e.message) for e in world.events(Happening.GONE)] == [(first, "killed by signal 9")]
    assert world.events(Happening.DIED) == []
    assert await world.names() == [second]
    await world.want(1)
    assert await world.names() == [second]


async def test_one_that_gives_no_sign_of_life_is_killed_and_started_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobqueue_operator.platforms.local.worker.SILENT", 0.2)
    world.use()
    await world.want(1)
    (name,) = await world.names()
    await world.until(lambda: name in world.platform.process_ids(), "a process")
    frozen = world.platform.process_ids()[name]
    os.kill(frozen, signal.SIGSTOP)

    async def look(silent_for: float | None) -> None:
        seen = [replace(w, phase=Phase.READY, silent_for=silent_for) for w in await world.workers()]
        await world.platform.apply(Plan((Pool("email", "", Decision(1, Reason.DEMAND, "")),)), seen)

    await look(5.0)
    await asyncio.sleep(0.3)
    await world.want(1)  # the queue could not be read in between: nobody could have been heard of
    await look(5.0)
    assert psutil.pid_exists(frozen)
    await asyncio.sleep(0.3)
    await look(5.0)
    await world.until(lambda: world.platform.process_ids().get(name, frozen) != frozen, "another process")
    assert not psutil.pid_exists(frozen)


async def test_a_crowd_comes_up_a_few_at_a_time(world: World) -> None:
    world.use()
    await world.want(20)
    await world.until(lambda: world.notes().count("up") == turns.MOST, "the first few")
    first = list(world.platform.process_ids())
    assert len(first) == turns.MOST, "the others wait until the queue knows these"
    assert {w.phase for w in await world.workers()} == {Phase.STARTING}
    await world.told(Phase.READY, *first[:3], replicas=20)
    await world.until(lambda: world.notes().count("up") == turns.MOST + 3, "three more")
    assert len(world.platform.process_ids()) == turns.MOST + 3
    await asyncio.wait_for(world.platform.close(), PATIENCE)
    assert world.notes().count("up") == turns.MOST + 3, "who waited for its turn is not started to be ended"


async def test_one_that_never_comes_up_holds_the_others_up_for_a_while_only() -> None:
    tried = turns.Turns(most=1, within=0.01)
    never = asyncio.Event()
    stuck = await tried.take(unless=never)
    next_ = await asyncio.wait_for(tried.take(unless=never), PATIENCE)
    assert stuck is not None
    assert next_ is not None
    stuck.end()
    waiting = asyncio.create_task(turns.Turns(most=0).take(unless=never))
    never.set()
    assert await asyncio.wait_for(waiting, PATIENCE) is None
    next_.end()


async def test_the_worker_s_environment_holds_nothing_but_what_it_needs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SHELL", "x")
    world.use()
    await world.want(1)
    await world.until(lambda: "up" in world.notes(), "a worker")
    pid = next(iter(world.platform.process_ids().values()))
    assert "SECRET_OF_THE_SHELL" not in psutil.Process(pid).environ()
    assert os.getsid(pid) == pid, "a session of its own: the terminal's Ctrl-C is not for the worker"


async def test_what_an_earlier_run_left_behind_is_drained(world: World, tmp_path: Path) -> None:
    world.use(grace=5.0)
    await world.want(1)
    await world.until(lambda: "up" in world.notes(), "a worker")
    (record,) = (tmp_path / "state" / "workers").glob("*.json")
    second = LocalPlatform(tmp_path / "state", {})
    pid = next(iter(world.platform.process_ids().values()))
    assert await second.recover() == [record.stem]
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert "term1" in world.notes()
    await second.close()
    await world.until(lambda: world.events(Happening.DIED), "the first platform to notice")


def test_a_process_id_that_somebody_else_has_now_is_left_alone(tmp_path: Path) -> None:
    survivors.write(tmp_path, "email-1", "email", "uid", os.getpid(), grace=0.0)
    (file,) = tmp_path.glob("*.json")
    record = json.loads(file.read_text())
    file.write_text(json.dumps({**record, "created": record["created"] - 3600}))
    assert survivors.end_all(tmp_path) == []
    assert not file.exists()
