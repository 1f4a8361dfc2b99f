from __future__ import annotations

import pytest

from jobqueue.worker import pacing


@pytest.mark.parametrize(
    ("took", "seconds"),
    [(0.0, 1.0), (0.01, 1.0), (0.1, 2.0), (0.4, 8.0), (3600.0, 10.0)],
    ids=["nothing", "quick", "slow", "slower", "this process was frozen for an hour"],
)
def test_the_pause_follows_the_work_within_bounds(took: float, seconds: float) -> None:
    assert pacing.interval(took) == pytest.approx(seconds)
