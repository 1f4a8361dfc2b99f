"""Short forms of the scenes of `python -m bench.scaling`: real workers on the local platform."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bench.scaling import scenes

if TYPE_CHECKING:
    from services.postgres import Server

pytestmark = pytest.mark.usefixtures("_databases")  # the scenes make copies of the migrated template


def test_a_burst_is_worked_off_in_time_and_the_fleet_goes_to_zero(pg: Server) -> None:
    verdict, _ = scenes.burst(1, pg, jobs=250)
    assert verdict.holds, f"\n{verdict.table()}"


def test_callers_never_exceed_the_limit_over_rollouts_of_two_queues(pg: Server) -> None:
    verdict, _ = scenes.rollouts(1, pg, times=2, kills=1)
    assert verdict.holds, f"\n{verdict.table()}"
