from __future__ import annotations

import pytest

from jobqueue.worker.board import Glance
from jobqueue.worker.verdict import AIMLESS, FROZEN_LOOKS, GRACE, Kill, Watch

FOREVER = 1e9


def looked(watch: Watch, glance: Glance, *, times: int, at: float, lease_end: float = FOREVER) -> Kill | None:
    verdict = None
    for number in range(times):
        verdict = watch.look(glance, at + number * 0.1, lambda _token: lease_end)
    return verdict


def test_a_loop_that_turns_is_left_alone_whatever_is_late() -> None:
    watch = Watch(class_timeout=10)
    for tick in range(1, 100):
        glance = Glance(tick, (7, 0.0), ((8, 0.0),))
        assert watch.look(glance, 50 + tick / 10, lambda _token: 0.0) is None
    assert not watch.frozen


def test_a_runner_that_has_not_begun_is_not_judged() -> None:
    assert looked(Watch(class_timeout=1), Glance(0, None, ()), times=1000, at=0) is None


def test_frozen_is_counted_in_looks_so_that_a_stopped_machine_is_no_fault() -> None:
    watch = Watch(class_timeout=1)
    watch.look(Glance(5, (7, 1.0), ()), 0.0, lambda _token: FOREVER)
    assert watch.look(Glance(5, (7, 1.0), ()), 10_000.0, lambda _token: FOREVER) is None


def test_the_job_in_the_loop_is_the_offender_once_its_deadline_is_over() -> None:
    glance = Glance(5, (7, 20.0), ((8, 30.0),))
    assert looked(Watch(class_timeout=10), glance, times=FROZEN_LOOKS + 5, at=10) is None
    verdict = looked(Watch(class_timeout=10), glance, times=FROZEN_LOOKS + 1, at=20)
    assert verdict is not None
    assert verdict.offenders == {7}


def test_threads_past_their_deadline_are_offenders_after_a_grace() -> None:
    glance = Glance(5, None, ((8, 20.0), (9, 99.0)))
    assert looked(Watch(class_timeout=10), glance, times=FROZEN_LOOKS + 1, at=20 + GRACE - 1.1) is None
    verdict = looked(Watch(class_timeout=10), glance, times=FROZEN_LOOKS + 1, at=20 + GRACE)
    assert verdict is not None
    assert verdict.offenders == {8}


@pytest.mark.parametrize("glance", [Glance(5, (7, 99.0), ()), Glance(5, None, ((7, 99.0),))])
def test_a_frozen_job_whose_lease_is_over_is_killed_without_blame(glance: Glance) -> None:
    verdict = looked(Watch(class_timeout=10), glance, times=FROZEN_LOOKS + 1, at=20, lease_end=20.5)
    assert verdict is not None
    assert verdict.offenders == frozenset()


def test_a_loop_frozen_by_nothing_known_gets_the_class_timeout_and_a_margin() -> None:
    watch = Watch(class_timeout=2)
    times = int((2 + AIMLESS) * 10)
    assert looked(watch, Glance(5, None, ()), times=times, at=0) is None
    verdict = looked(watch, Glance(5, None, ()), times=10, at=times / 10)
    assert verdict is not None
    assert verdict.offenders == frozenset()
