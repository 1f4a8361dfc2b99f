"""The wait of every wake-up: level-triggered, bounded, jittered downwards."""

import asyncio
import random
import time

import pytest

from jobqueue.errors import ConfigurationError
from jobqueue.wakeup import create
from jobqueue.wakeup.polling import PollingWakeup

LONG = 30.0  # seconds nobody waits for: a wait that takes them fails by the bound around it


async def test_a_wake_between_two_waits_is_not_lost() -> None:
    wakeup = PollingWakeup()
    wakeup.wake()
    async with asyncio.timeout(5):
        await wakeup.wait(LONG)


async def test_many_wakes_are_one() -> None:
    wakeup = PollingWakeup()
    wakeup.wake()
    wakeup.wake()
    await wakeup.wait(LONG)
    waiter = asyncio.create_task(wakeup.wait(LONG))
    done, _ = await asyncio.wait({waiter}, timeout=0.05)
    assert not done
    wakeup.wake()
    await asyncio.wait_for(waiter, 5)


async def test_a_wake_ends_a_wait_under_way() -> None:
    wakeup = PollingWakeup()
    waiter = asyncio.create_task(wakeup.wait(LONG))
    await asyncio.sleep(0)
    wakeup.wake()
    await asyncio.wait_for(waiter, 5)


class Fixed(random.Random):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def random(self) -> float:
        return self.value


@pytest.mark.parametrize(("draw", "share"), [(0.0, 1.0), (0.5, 0.875), (1.0, 0.75)])
async def test_a_wait_is_jittered_downwards_and_never_longer_than_its_timeout(draw: float, share: float) -> None:
    wakeup = PollingWakeup(rng=Fixed(draw))
    began = time.monotonic()
    await wakeup.wait(0.4)
    assert 0.4 * share - 0.01 < time.monotonic() - began < 0.4 * share + 0.15


async def test_stop_wakes_the_sleeper_twice_without_harm_and_leaves_polling() -> None:
    wakeup = PollingWakeup()
    await wakeup.start()
    waiter = asyncio.create_task(wakeup.wait(LONG))
    await asyncio.sleep(0)
    await wakeup.stop()
    await asyncio.wait_for(waiter, 5)
    await wakeup.stop()
    await wakeup.wait(LONG)
    await asyncio.wait_for(wakeup.wait(0.01), 5)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("carrier pigeon", "unknown wake-up 'carrier pigeon': use one of polling, notify, rabbitmq"),
        ("notify", "needs a database connection"),
        ("rabbitmq", "--broker-url"),
    ],
)
def test_bad_settings_are_named(kind: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        create(kind, classes=["email"])


def test_polling_needs_nothing() -> None:
    assert isinstance(create("polling", classes=["email"]), PollingWakeup)
