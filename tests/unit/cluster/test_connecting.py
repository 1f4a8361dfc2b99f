"""One link a database, opened by the login of the oldest JobQueue there; nobody is let in by somebody else's."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobqueue_operator.cluster import login
from jobqueue_operator.cluster.connecting import LOOKED_UP, Connecting
from jobqueue_operator.cluster.links import Link
from jobqueue_operator.cluster.login import LoginRefused
from jobqueue_operator.cluster.settings import OperatorSettings
from jobqueue_operator.cluster.store import Known
from jobqueue_operator.cluster.work import Work
from unit.planner.workload.shop import shop

if TYPE_CHECKING:
    from jobqueue_operator.cluster.store import Key


class World:
    """Secrets by namespace: host and password of each JobQueue's operator."""

    def __init__(self) -> None:
        self.secrets: dict[str, dict[str, str]] = {}
        self.remembered: set[Key] = set()
        self.connecting = Connecting(
            self,  # type: ignore[arg-type]
            OperatorSettings(),
            Path(),
            lambda: None,
        )
        self.closed: list[Any] = []

    async def read(self, namespace: str, name: str) -> dict[str, str]:
        if namespace not in self.secrets:
            raise LoginRefused(f"Secret {name}: does not exist")
        found = {"dbname": "shop", "user": "operator"} | self.secrets[namespace]
        return {key: base64.b64encode(value.encode()).decode() for key, value in found.items()}

    def forget(self, keep: set[Key]) -> None:
        self.remembered = keep

    async def round(self, *queues: tuple[str, float]) -> list[Work]:
        works = []
        for namespace, created_at in queues:
            known = Known(
                key=(namespace, "shop"),
                uid=namespace,
                generation=1,
                created_at=created_at,
                manifest=shop(),
                problems=(),
                status={},
            )
            work = Work(known, known.queue)
            await self.connecting.connect(work)
            works.append(work)
        await self.connecting.close_unused(works)
        return works

    def has(self, namespace: str, word: str = "one", host: str = "10.0.0.1") -> None:
        self.secrets[namespace] = {"host": host, "password": word}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()

    async def close(self: Link) -> None:
        made.closed.append(self)

    monkeypatch.setattr(Link, "close", close)
    return made


def password(link: Link | None) -> str:
    assert link is not None
    assert link._address is not None  # noqa: SLF001 - what it would connect with
    return link._address.login.password  # noqa: SLF001 - as above


async def test_two_jobqueues_on_one_database_share_a_link(world: World) -> None:
    world.has("a")
    world.has("b")
    one, two = await world.round(("a", 1), ("b", 2))
    assert one.link is two.link is not None
    (again,) = await world.round(("b", 2))
    assert again.link is one.link
    assert world.closed == []


async def test_another_host_is_another_link_and_one_that_nobody_uses_is_closed(world: World) -> None:
    world.has("a")
    world.has("b", host="10.0.0.2")
    one, two = await world.round(("a", 1), ("b", 2))
    assert one.link is not two.link
    await world.round(("a", 1))
    assert world.closed == [two.link]
    assert world.remembered == {("a", "shop-queue-operator"), ("a", "shop-queue-direct")}


@pytest.mark.parametrize("order", [1, -1])
async def test_another_password_does_not_let_in_and_does_not_disturb(world: World, order: int) -> None:
    world.has("a")
    world.has("b", "guessed")
    for _ in range(2):
        one, two = sorted(await world.round(*[("a", 1.0), ("b", 2.0)][::order]), key=lambda work: work.key)
        assert password(one.link) == "one"
        assert two.link is None
        assert two.refusal is not None
        assert two.refusal.reason == "LoginDiffers"
        assert "JobQueue a/shop uses this database with another user or password; give both" in two.refusal.message
        assert "one" not in two.refusal.message.split()
    (two,) = await world.round(("b", 2))
    assert two.refusal is not None, "for one round more the login of the deleted one holds"
    assert world.closed[-1] is one.link
    (two,) = await world.round(("b", 2))
    assert password(two.link) == "guessed"
    assert two.link is not one.link


async def test_a_younger_one_s_way_of_connecting_is_not_taken(world: World) -> None:
    world.has("a")
    world.has("b")
    world.secrets["b"]["sslmode"] = "disable"
    one, two = await world.round(("a", 1), ("b", 2))
    assert one.link is two.link
    assert one.link is not None
    assert one.link._address is not None  # noqa: SLF001 - as above
    assert one.link._address.login.sslmode == "prefer"  # noqa: SLF001 - as above


async def test_who_inherits_a_link_keeps_others_out(world: World) -> None:
    for namespace in "abc":
        world.has(namespace, "guessed" if namespace == "b" else "one")
    one, *_ = await world.round(("a", 1), ("b", 2), ("c", 3))
    *_, three = await world.round(("b", 2), ("c", 3))
    assert three.link is one.link
    assert world.closed == []


async def test_a_rotated_password_is_used_by_the_same_link(world: World) -> None:
    world.has("a")
    (before,) = await world.round(("a", 1))
    world.has("a", "two")
    (after,) = await world.round(("a", 1))
    assert after.link is before.link
    assert password(after.link) == "two"


async def test_a_secret_that_is_gone_closes_nothing_and_gives_nobody_else_the_database(world: World) -> None:
    world.has("a")
    world.has("b", "guessed")
    one, _ = await world.round(("a", 1), ("b", 2))
    del world.secrets["a"]
    for _ in range(2):
        gone, two = await world.round(("a", 1), ("b", 2))
        assert gone.refusal is not None
        assert (gone.refusal.reason, gone.refusal.message) == (
            "SecretRefused",
            "Secret shop-queue-operator: does not exist",
        )
        assert two.link is None
    assert world.closed == []
    world.has("a")
    (again, _) = await world.round(("a", 1), ("b", 2))
    assert again.link is one.link


async def test_a_name_server_that_does_not_answer_takes_no_database_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    answers = 0
    silent = False

    async def addresses(*_: Any, **__: Any) -> list[str]:
        nonlocal answers
        answers += 1
        if silent:
            raise LoginRefused("host cannot be looked up")
        return ["10.0.0.1"]

    monkeypatch.setattr(login, "addresses", addresses)
    world.has("a", host="db")
    await world.round(("a", 1))
    await world.round(("a", 1))
    assert answers == 2, "both Secrets, and for a minute nobody is asked"
    silent = True
    now += LOOKED_UP
    (work,) = await world.round(("a", 1))
    assert work.link is not None
    now += 10 * LOOKED_UP
    (work,) = await world.round(("a", 1))
    assert work.refusal is not None
