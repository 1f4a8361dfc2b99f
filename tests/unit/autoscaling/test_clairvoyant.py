"""The bound against cases worked out by hand: pod-seconds plus the start delay for each rise, pods in fractions."""

from __future__ import annotations

import numpy as np
import pytest
from bench.autoscaling.clairvoyant import bound

from unit.autoscaling.loads import load


def test_work_that_a_pod_of_the_start_can_do_costs_itself() -> None:
    assert bound(load([0.0], 10.0), 5.0) == pytest.approx(10.0)


def test_a_rise_costs_the_start_delay_and_is_as_small_as_the_target_allows() -> None:
    # 10 s of work, none before a pod can be up (5), all of it by 10 + 10: 2/3 of a pod for 15 s, and its rise of 5 s.
    assert bound(load([0.0], 10.0, first=0), 5.0) == pytest.approx(10 + 5 * 2 / 3)


def test_slots_share_a_pod() -> None:
    assert bound(load([0.0] * 4, 10.0, slots=4), 5.0) == pytest.approx(10.0)


def test_work_is_done_again_for_every_failed_attempt() -> None:
    failing = load([0.0], 10.0, failures=np.array([1]), jitter=np.array([0.0]))
    assert bound(failing, 5.0) == pytest.approx(20.0)


def test_what_the_cap_makes_late_is_done_as_soon_as_it_can_be_and_costs_its_work() -> None:
    # By 30 all 40 s of work should be done. One slot does it by 40; with room for another, 0.4 of one from 5 on helps.
    assert bound(load([0.0, 0.0], 20.0, cap=1), 5.0) == pytest.approx(40.0)
    assert bound(load([0.0, 0.0], 20.0, cap=2), 5.0) == pytest.approx(40.0 + 5 * 0.4)


def test_nothing_to_do_costs_nothing() -> None:
    assert bound(load([], 1.0), 5.0) == 0.0
