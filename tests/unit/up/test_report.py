import io
import json
from dataclasses import replace
from datetime import UTC, datetime

from rich.console import Console

from jobqueue_operator.planner.facts import ClassFacts, Facts, Phase, WorkerFacts
from jobqueue_operator.planner.plan import (
    Allocation,
    Condition,
    Decision,
    Plan,
    Pool,
    Reason,
    Remark,
    Share,
    Terms,
)
from jobqueue_operator.planner.wanted import PoolSpec, Wanted
from jobqueue_operator.resources import ClassSpec
from jobqueue_operator.up.lines import Lines
from jobqueue_operator.up.report import CapacityRow, Row, capacity_rows, rows
from jobqueue_operator.up.table import Table, render

SPEC = ClassSpec.model_validate({"name": "email", "timeout": "30s"})
WANTED = Wanted(pools=(PoolSpec(key="email", spec=SPEC),))
PLAN = Plan((Pool("email", "r", Decision(2, Reason.MINIMUM_REPLICAS, "replicas.min 2")),))
ROW = Row(
    class_="email", target_age=60.0, oldest_age=3725.0, ready=12345, scheduled=1, in_flight=2, done=3, dead=4,
    workers_ready=1, workers=2, workers_wanted=2, reason="MinimumReplicas", why="replicas.min 2",
)  # fmt: skip


def test_a_row_says_what_is_and_why() -> None:
    workers = (
        WorkerFacts(name="a", class_="email", phase=Phase.READY, revision="r"),
        WorkerFacts(name="b", class_="email", phase=Phase.STARTING, revision="r"),
        WorkerFacts(name="c", class_="other", phase=Phase.READY, revision="r"),
    )
    seen = ClassFacts(ready=12345, scheduled=1, in_flight=2, dead=4, oldest_age=3725.0)
    facts = Facts(classes={"email": seen}, workers=workers)
    assert rows(WANTED, facts, PLAN, {"email": 3}, {}) == [ROW]
    assert ROW.late


def test_what_cannot_be_seen_is_not_shown_as_zero() -> None:
    (row,) = rows(WANTED, Facts(visible=False), PLAN, None, {"email": "no module"})
    assert (row.ready, row.oldest_age, row.done) == (None, None, None)
    assert row.why == "replicas.min 2; workers do not come up: no module"
    assert not row.late
    assert rows(WANTED, Facts(visible=False), Plan(()), None, {})[0].why == "draining"


def test_lines_are_json_one_each() -> None:
    stream = io.StringIO()
    lines = Lines(stream, clock=lambda: datetime(2026, 1, 2, tzinfo=UTC))
    lines.say("error", "no\nway", worker="w")
    lines.tick([ROW])
    lines.close()
    message, tick = (json.loads(line) for line in stream.getvalue().splitlines())
    assert message.pop("time") == tick["time"] == "2026-01-02T00:00:00.000+00:00"
    assert message == {"event": "message", "level": "error", "message": "no\nway", "worker": "w"}
    assert tick["classes"][0]["class"] == "email"
    assert tick["classes"][0]["why"] == "replicas.min 2"


def test_a_reader_that_went_away_stops_nothing() -> None:
    stream = io.StringIO()
    stream.close()
    Lines(stream).tick([ROW])


def drawn(row: Row, *capacities: CapacityRow, width: int = 160) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(render([row], capacities))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_is_drawn() -> None:
    text = drawn(ROW)
    for part in ("email", "1m00s", "1h02m", "12,345", "1/2", "replicas.min 2"):
        assert part in text
    assert "?" in drawn(replace(ROW, ready=None))
    assert "[bold]" in drawn(replace(ROW, why="[bold]not markup")), "what others wrote is not markup"


def test_the_live_table_takes_ticks_and_lines() -> None:
    console = Console(file=io.StringIO(), width=160, force_terminal=True)
    table = Table(console)
    table.say("info", "before")
    table.tick([ROW])
    table.say("error", "[red]between")
    table.tick([ROW])
    table.close()
    table.close()
    assert isinstance(console.file, io.StringIO)
    assert "[red]between" in console.file.getvalue()


def test_workers_on_their_way_out_are_counted_apart() -> None:
    phases = [Phase.READY, Phase.READY, Phase.RETIRED, Phase.DRAINING, Phase.STARTING]
    workers = [WorkerFacts(name=str(i), class_="email", phase=phase, revision="r") for i, phase in enumerate(phases)]
    (row,) = rows(WANTED, Facts(workers=tuple(workers)), PLAN, None, {})
    assert (row.workers, row.workers_ready, row.workers_retired, row.workers_draining) == (5, 2, 1, 1)
    assert "2/2 -2" in drawn(row)


def test_a_decision_s_terms_and_remarks_are_in_the_line_of_a_tick() -> None:
    remark = Remark(Condition.AT_CAPACITY, "db is full")
    decision = Decision(2, Reason.DOWNSTREAM_CAPACITY, "needs 6", terms=Terms(target=60.0, need=6), remarks=(remark,))
    stream = io.StringIO()
    Lines(stream).tick(rows(WANTED, Facts(), Plan((Pool("email", "r", decision),)), None, {}))
    (email,) = json.loads(stream.getvalue())["classes"]
    assert (email["workers_wanted"], email["reason"]) == (2, "DownstreamCapacity")
    assert (email["terms"]["target"], email["terms"]["need"]) == (60.0, 6)
    assert email["remarks"] == ["AtCapacity: db is full"]


def test_what_was_said_already_is_not_said_again_beside_its_condition() -> None:
    row = replace(ROW, why="2 fit", remarks=("AtCapacity: class email: 2 fit", "HeadBlocked: 1 unsupported"))
    assert "2 fit; AtCapacity; HeadBlocked: 1 unsupported" in drawn(row)


SHARES = (
    Share(pool="email", minimum=0, asked=12, allocated=4, replicas=2, held_back_by=("reports",)),
    Share(pool="reports", minimum=6, asked=6, allocated=6, replicas=3),
)


def test_a_downstream_has_a_line_with_who_is_held_back_and_by_whom() -> None:
    allocation = Allocation(
        downstream="db", ceiling=12, limit=10, in_use=9, reason=Reason.SPEC_LIMIT, message="", shares=SHARES
    )
    (row,) = capacity_rows(Plan((), (allocation,)))
    text = drawn(ROW, row)
    assert "9/10 units · email 4 of 12, held back by reports · reports 6" in text
    assert "held back by the limit" in drawn(ROW, replace(row, claims=(replace(row.claims[0], held_back_by=()),)))


def test_the_table_fits_into_100_columns() -> None:
    row = replace(ROW, class_="documents-to-be-read", ready=1_234_567, done=12_345_678, why="because " * 40)
    text = drawn(row, width=100)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 100
    assert "…" not in text
    assert "12,345,678" in text
    assert text.count("because") == 40
