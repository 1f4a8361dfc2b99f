"""What every other test leans on: bounded waiting, and skips that CI can forbid."""

from __future__ import annotations

import itertools

import pytest

from services.required import require
from services.waiting import eventually, eventually_async


def test_a_part_that_is_there_is_found() -> None:
    assert require("sh").name == "sh"


def test_a_missing_part_skips_and_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBQUEUE_REQUIRE", "pgbouncer")
    with pytest.raises(pytest.skip.Exception, match="no-such-program: not installed"):
        require("no-such-program")


@pytest.mark.parametrize("listed", ["no-such-program", "pgbouncer,no-such-program", "pgbouncer, no-such-program"])
def test_a_missing_part_that_is_required_fails(monkeypatch: pytest.MonkeyPatch, listed: str) -> None:
    monkeypatch.setenv("JOBQUEUE_REQUIRE", listed)
    # A skip is caught as well: it would pass out of this test as one more skip.
    with pytest.raises((pytest.fail.Exception, pytest.skip.Exception)) as caught:
        require("no-such-program")
    assert isinstance(caught.value, pytest.fail.Exception)
    assert "JOBQUEUE_REQUIRE names no-such-program" in str(caught.value)


def test_eventually_returns_what_became_true() -> None:
    counted = itertools.count()
    assert eventually(lambda: next(counted) >= 3 and "ready") == "ready"


def test_eventually_gives_up_and_says_what_it_saw() -> None:
    with pytest.raises(AssertionError, match=r"the end of days did not hold within 0\.05 s \(last value: 0\)"):
        eventually(lambda: 0, within=0.05, what="the end of days")


async def test_eventually_async_waits_and_gives_up_alike() -> None:
    counted = itertools.count()

    async def third() -> bool:
        return next(counted) >= 3

    async def never() -> bool:
        return False

    assert await eventually_async(third)
    with pytest.raises(AssertionError, match="the condition did not hold"):
        await eventually_async(never, within=0.05)
