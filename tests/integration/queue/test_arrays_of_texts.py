"""What enqueue_many writes as array literals arrives as it was given."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

from jobqueue import queue
from jobqueue.queue import NewJob

if TYPE_CHECKING:
    from integration.queue.stage import Stage

AWKWARD = [
    "NULL",
    "null",
    '"',
    "\\",
    '\\"',
    "{}",
    "a,b",
    "{a,b}",
    " lead and trail ",
    "\n",
    "ü 火 \U0001f600",
    "'",
    "%s",
]


def test_every_text_arrives_as_it_was(stage: Stage) -> None:
    jobs = [
        NewJob(
            "c", "work", {text: text}, key=text, tenant=text, correlation_id=text, actor_id=text, concurrency_key=text
        )
        for text in AWKWARD
    ]
    ids = [row.id for row in queue.enqueue_many(stage.conn, jobs)]
    rows = stage.admin.execute(
        "SELECT payload, key, tenant, correlation_id, actor_id, concurrency_key FROM jobqueue.jobs"
        " WHERE id = ANY (%s) ORDER BY id",
        [ids],
    ).fetchall()
    assert rows == [({text: text}, *[text] * 5) for text in AWKWARD]


def test_some_given_and_some_left_out(stage: Stage) -> None:
    when = datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=timezone(timedelta(hours=-3, minutes=-30)))
    jobs = [
        NewJob("c", "work", [1]),
        NewJob(
            "c", "work", None, version=2, key="k", run_after=when, priority=-5, max_attempts=3, trace_context={"a": '"'}
        ),
    ]
    ids = [row.id for row in queue.enqueue_many(stage.conn, jobs)]
    rows = stage.admin.execute(
        "SELECT j.payload, j.version, j.key, j.run_after, j.priority, j.max_attempts, j.tenant, b.trace_context"
        " FROM jobqueue.jobs j JOIN jobqueue.body b USING (id) WHERE j.id = ANY (%s) ORDER BY j.id",
        [ids],
    ).fetchall()
    moment = rows[0][3]
    assert rows == [
        ([1], 1, None, moment, 0, 10, None, None),
        (None, 2, "k", when.astimezone(UTC), -5, 3, None, {"a": '"'}),
    ]
