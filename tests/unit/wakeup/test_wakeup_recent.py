"""What the relay remembers is bounded in time and number."""

import pytest

pytest.importorskip("aio_pika")

from jobqueue.wakeup.relay import Recent


def test_an_id_is_known_until_its_time_is_over() -> None:
    recent = Recent(seconds=30, limit=100)
    recent.add(7, now=0)
    assert recent.unknown([7, 8], now=29) == [8]
    assert recent.unknown([7, 8], now=30) == [7, 8]
    assert len(recent) == 0


def test_publishing_again_starts_the_time_anew() -> None:
    recent = Recent(seconds=30, limit=100)
    recent.add(7, now=0)
    recent.add(8, now=10)
    recent.add(7, now=20)
    assert recent.unknown([7, 8], now=41) == [8]


def test_a_million_ids_are_not_remembered() -> None:
    recent = Recent(seconds=30, limit=1000)
    for id_ in range(1_000_000):
        recent.add(id_, now=1)
    assert len(recent) == 1000
    assert recent.unknown([0, 999_999], now=2) == [0]
