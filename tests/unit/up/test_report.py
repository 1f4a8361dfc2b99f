import io
import json
from dataclasses import replace
from datetime import UTC, datetime

from rich.console import Console

from jobqueue_operator.planner.facts import ClassFacts, Facts, Phase, WorkerFacts
from jobqueue_operator.planner.plan import Decision, Plan, Pool, Reason
from jobqueue_operator.planner.wanted import PoolSpec, Wanted
from jobqueue_operator.resources import ClassSpec
from jobqueue_operator.up.lines import Lines
from jobqueue_operator.up.report import Row, rows
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


def drawn(row: Row) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(render([row]))
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
