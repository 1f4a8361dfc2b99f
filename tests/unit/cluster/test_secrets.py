"""Secrets are read by `get`, kept for a minute, and held on to while nobody answers."""

from __future__ import annotations

from typing import Any

import pytest

from jobqueue_operator.cluster.login import LoginRefused
from jobqueue_operator.cluster.secrets import KEPT, KEPT_REFUSAL, Secrets
from jobqueue_operator.platforms.kubernetes.api import SECRETS, ApiError, Unreachable

DATA = {"host": "ZGI="}


class World:
    def __init__(self, answer: Any = None) -> None:
        self.answer = {"data": DATA} if answer is None else answer
        self.now = 1000.0
        self.asked = 0
        self.secrets = Secrets(self, clock=lambda: self.now)  # type: ignore[arg-type]

    async def get(self, kind: Any, namespace: str, name: str) -> Any:
        assert (kind, namespace, name) == (SECRETS, "shop", "login")
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer or None

    async def read(self, after: float = 0.0) -> Any:
        self.now += after
        return await self.secrets.read("shop", "login")

    async def refusal(self, after: float = 0.0) -> str:
        with pytest.raises(LoginRefused) as caught:
            await self.read(after)
        return str(caught.value)


async def test_a_secret_is_read_once_a_minute() -> None:
    world = World()
    assert await world.read() == DATA
    world.answer = {"data": {}}
    assert await world.read(KEPT - 0.1) == DATA
    assert await world.read(0.2) == {}
    assert world.asked == 2


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (ApiError(403, "no"), "Secret login: may not be read; let the operator get Secrets in namespace shop"),
        ({}, "Secret login: does not exist in namespace shop; create it"),
        (Unreachable("nobody there"), "Secret login: nobody there"),
        (ApiError(503, "too busy"), "Secret login: too busy"),
    ],
)
async def test_one_that_cannot_be_read_says_why_and_is_tried_again_soon(answer: Any, said: str) -> None:
    world = World(answer)
    assert (await world.refusal()).startswith(said)
    world.answer = {"data": DATA}
    await world.refusal(KEPT_REFUSAL - 0.1)
    assert await world.read(0.2) == DATA
    assert world.asked == 2


@pytest.mark.parametrize("answer", [Unreachable("nobody there"), ApiError(503, "too busy"), ApiError(429, "later")])
async def test_what_was_read_holds_on_while_there_is_no_verdict(answer: Exception) -> None:
    world = World()
    await world.read()
    world.answer = answer
    for _ in range(5):
        assert await world.read(KEPT) == DATA
    assert world.asked == 6


@pytest.mark.parametrize("answer", [ApiError(403, "no"), {}])
async def test_what_was_taken_away_is_gone(answer: Any) -> None:
    world = World()
    await world.read()
    world.answer = answer
    await world.refusal(KEPT)


async def test_one_without_data_is_empty() -> None:
    assert await World({"metadata": {}}).read() == {}


async def test_what_is_forgotten_is_read_anew() -> None:
    world = World()
    await world.read()
    world.secrets.forget({("shop", "login")})
    await world.read()
    assert world.asked == 1
    world.secrets.forget(set())
    await world.read()
    assert world.asked == 2
