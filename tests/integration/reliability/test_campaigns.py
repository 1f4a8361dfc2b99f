"""Short forms of campaigns; the full ones are `python -m bench.reliability`."""

from __future__ import annotations

import importlib
import zlib
from typing import TYPE_CHECKING

import pytest
from bench.reliability.stage import Stage
from bench.reliability.verdict import Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from services.databases import Factory
    from services.postgres import Server


@pytest.fixture
def stage(request: pytest.FixtureRequest, pg: Server, _databases: Factory) -> Iterator[Stage]:
    with Stage(zlib.crc32(request.node.name.encode()), lease=request.param, server=pg) as made:
        yield made


@pytest.mark.parametrize(
    ("campaign", "stage", "jobs", "faults"),
    [
        ("terminations", 10, 200, 8),
        ("rollouts", 10, 150, 3),
    ],
    indirect=["stage"],
)
def test_campaign_holds(stage: Stage, campaign: str, jobs: int, faults: int) -> None:
    verdict = importlib.import_module(f"bench.reliability.{campaign}").run(stage, 0, jobs=jobs, faults=faults)
    assert verdict.holds, f"\n{verdict.table()}"


@pytest.mark.parametrize("stage", [10], indirect=True)
@pytest.mark.parametrize(
    ("damage", "figure"),
    [
        ("DELETE FROM public.effect", "missing effects"),
        ("INSERT INTO public.effect SELECT * FROM public.effect", "duplicate effects"),
        ("UPDATE jobqueue.outcome SET status = 'x'", "jobs in another status than done"),
        ("UPDATE jobqueue.outcome SET attempts = 400", "jobs with more attempts than allowed"),
        ("UPDATE jobqueue.outcome SET attempts = 2", "jobs whose attempts differ from their history"),
        ("DELETE FROM jobqueue.outcome", "jobs in another status than done"),
    ],
)
def test_judge_sees_what_is_wrong(stage: Stage, damage: str, figure: str) -> None:
    stage.load(3, mix={"async": 1.0}, seconds=(0.0, 0.0))
    stage.staff(1)
    stage.until_finished()
    sound = Verdict("sound", 0)
    judge(stage, sound)
    assert sound.holds, sound.table()
    stage.connection.execute(damage)
    hurt = Verdict("hurt", 0)
    judge(stage, hurt)
    assert hurt[figure] > 0
    assert not hurt.holds


def test_a_campaign_without_its_faults_does_not_hold() -> None:
    verdict = Verdict("kills", 0)
    verdict.happened("kills", 0)
    assert not verdict.holds
    assert "FAILS" in verdict.table()
