"""Invariant 11: bad input is refused at enqueue naming the field; recording a failure cannot fail."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pydantic
import pytest

from jobqueue import queue
from jobqueue.errors import InvalidInput, UnknownClass, UnknownDownstream
from jobqueue.queue import NewJob

if TYPE_CHECKING:
    from integration.queue.stage import Stage

DEEP: Any = []
for _ in range(100):
    DEEP = [DEEP]
BOTTOMLESS: Any = []
for _ in range(100_000):
    BOTTOMLESS = [BOTTOMLESS]
LOOP: list[Any] = []
LOOP.append(LOOP)
LIMIT = 262_144

# what is given, and the field that the message names
PYTHON: dict[str, tuple[dict[str, Any], str]] = {
    "kind empty": ({"kind": ""}, "kind"),
    "kind long": ({"kind": "x" * 201}, "kind"),
    "kind NUL": ({"kind": "a\x00"}, "kind"),
    "kind surrogate": ({"kind": "a\ud800"}, "kind"),
    "kind control": ({"kind": "a\nb"}, "kind"),
    "class NUL": ({"class_": "c\x00"}, "class"),
    "payload NUL": ({"payload": {"a": ["x\x00"]}}, r"payload\.a\[0\]"),
    "payload key NUL": ({"payload": {"a\x00": 1}}, r"payload \(a key\)"),
    "payload surrogate": ({"payload": {"a": "\ud800"}}, r"payload\.a"),
    "payload surrogate pair in parts": ({"payload": ["\udc00\ud83d"]}, r"payload\[0\]"),
    "payload NaN": ({"payload": {"a": float("nan")}}, r"payload\.a"),
    "payload Infinity": ({"payload": [0, float("-inf")]}, r"payload\[1\]"),
    "payload 5,000 digits": ({"payload": {"n": 10**4999}}, r"payload\.n"),
    "payload 5,000 digits below zero": ({"payload": {"n": -(10**4999)}}, r"payload\.n"),
    "payload deep": ({"payload": DEEP}, r"payload[\[\]0]+"),
    "payload bottomless": ({"payload": BOTTOMLESS}, r"payload[\[\]0]+"),
    "payload circular": ({"payload": LOOP}, r"payload[\[\]0]+"),
    "payload large": ({"payload": "x" * LIMIT}, "payload"),
    "payload large in bytes": ({"payload": "é" * (LIMIT // 2)}, "payload"),
    "payload bytes": ({"payload": {"a": b"x"}}, r"payload\.a"),
    "payload datetime": ({"payload": {"a": datetime(2020, 1, 1, tzinfo=UTC)}}, r"payload\.a"),
    "payload key no text": ({"payload": {1: 2}}, "payload"),
    "payload key none": ({"payload": {"a": {None: 2}}}, r"payload\.a"),
    "key empty": ({"key": ""}, "key"),
    "key long": ({"key": "x" * 513}, "key"),
    "key NUL": ({"key": "\x00"}, "key"),
    "version negative": ({"version": -1}, "version"),
    "priority": ({"priority": 101}, "priority"),
    "priority low": ({"priority": -101}, "priority"),
    "max_attempts none": ({"max_attempts": 0}, "max_attempts"),
    "max_attempts many": ({"max_attempts": 1001}, "max_attempts"),
    "tenant empty": ({"tenant": ""}, "tenant"),
    "tenant long": ({"tenant": "x" * 201}, "tenant"),
    "concurrency_key empty": ({"concurrency_key": ""}, "concurrency_key"),
    "concurrency_key surrogate": ({"concurrency_key": "\udfff"}, "concurrency_key"),
    "correlation_id long": ({"correlation_id": "x" * 201}, "correlation_id"),
    "actor_id long": ({"actor_id": "x" * 201}, "actor_id"),
    "trace_context large": ({"trace_context": {"a": "x" * 5000}}, "trace_context"),
    "run_after far away": ({"run_after": datetime(9999, 12, 31, tzinfo=UTC)}, "run_after"),
    "run_after long ago": ({"run_after": datetime(1, 1, 1, tzinfo=UTC)}, "run_after"),
}


@pytest.mark.parametrize("case", PYTHON)
def test_python_names_the_field(direct: Stage, case: str) -> None:
    given, field = PYTHON[case]
    with pytest.raises(InvalidInput, match=f"^{field}: "):
        direct.enqueue(**given)
    assert direct.one("SELECT count(*) FROM jobqueue.body") == 0


@pytest.mark.parametrize("case", PYTHON)
def test_enqueue_many_names_the_place_as_well(direct: Stage, case: str) -> None:
    given, field = PYTHON[case]
    good = NewJob("c", "work", {})
    bad = good._replace(**given)
    with pytest.raises(InvalidInput, match=rf"^jobs\[1\]\.{field}: "):
        queue.enqueue_many(direct.conn, [good, bad, good])
    assert direct.one("SELECT count(*) FROM jobqueue.body") == 0


# SQL text of one argument, or of the payload, and the field that the message names
SQL: dict[str, tuple[str, str]] = {
    "kind empty": ("kind => ''", "kind"),
    "kind null": ("kind => null", "kind"),
    "kind control": ("kind => E'a\\u0001'", "kind"),
    "payload null": ("payload => null", "payload"),
    "payload large": (f"payload => to_jsonb(repeat('x', {LIMIT}))", "payload"),
    "payload deep": ("payload => (repeat('[', 100) || repeat(']', 100))::jsonb", "payload"),
    "payload deep objects": ("payload => (repeat('{\"a\":', 100) || '1' || repeat('}', 100))::jsonb", "payload"),
    "payload 5,000 digits": ("payload => ('[' || repeat('9', 5000) || ']')::jsonb", "payload"),
    "payload 5,000 digits by exponent": ('payload => \'{"a": {"b": -1e5000}}\'', "payload"),
    "payload of many such": (
        "payload => ('[' || repeat('1e131071,', 5000) || '1]')::jsonb",
        "payload",
    ),
    "key empty": ("key => ''", "key"),
    "version null": ("version => null", "version"),
    "version negative": ("version => -1", "version"),
    "run_after infinity": ("run_after => 'infinity'", "run_after"),
    "run_after -infinity": ("run_after => '-infinity'", "run_after"),
    "run_after before Christ": ("run_after => '0044-03-15 BC'", "run_after"),
    "run_after far away": ("run_after => '294276-01-01'", "run_after"),
    "priority": ("priority => 32768", "priority"),
    "max_attempts": ("max_attempts => 100000", "max_attempts"),
    "tenant": ("tenant => ''", "tenant"),
    "concurrency_key": ("concurrency_key => ''", "concurrency_key"),
    "trace_context no object": ("trace_context => '[1]'", "trace_context"),
    "trace_context number": ("trace_context => '{\"a\": 1e5000}'", "trace_context"),
}


@pytest.mark.parametrize("case", SQL)
def test_plain_sql_names_the_field(direct: Stage, case: str) -> None:
    argument, field = SQL[case]
    given = {"class": "class => 'c'", "kind": "kind => 'work'", "payload": "payload => '{}'"}
    given[argument.partition(" ")[0]] = argument
    with pytest.raises(psycopg.DatabaseError) as refused:
        direct.admin.execute(f"SELECT jobqueue.enqueue({', '.join(given.values())})")
    assert refused.value.sqlstate == "JQ003"
    assert str(refused.value.diag.message_primary).startswith(f"{field}: ")


@pytest.mark.parametrize("payload", ['{"a": "\\u0000"}', '{"a": "\\ud800"}', '{"a": NaN}', "{", ""])
def test_what_is_no_json_for_postgresql_is_refused_by_it(direct: Stage, payload: str) -> None:
    with pytest.raises(psycopg.DataError):
        direct.admin.execute("SELECT jobqueue.enqueue('c', 'work', %s::jsonb)", [payload])


def test_an_unknown_class_says_how_to_register_it(stage: Stage) -> None:
    with pytest.raises(UnknownClass, match=r"'nope'.*jobqueue migrate --class"):
        stage.enqueue("nope")
    with pytest.raises(UnknownClass, match=r"jobs\[1\]\.class: there is no class 'nope'"):
        queue.enqueue_many(stage.conn, [NewJob("c", "work", {}), NewJob("nope", "work", {})])
    assert stage.one("SELECT count(*) FROM jobqueue.body") == 0


GOOD: dict[str, Any] = {
    "none": None,
    "text": "x" * (LIMIT - 2),
    "every plane": "é漢😀\x01\x7f\u2028",
    "backslash u0000 as text": "\\u0000 and \\ud800",
    "numbers": [0, -1, 10**300, 1.5, 1e-300, 2**63, True],
    "999 digits": 10**999,
    "64 levels": json.loads("[" * 64 + "]" * 64),
    "empty names": {"": {"": []}},
    "tuple": [1, [2]],
}


@pytest.mark.parametrize("case", GOOD)
def test_good_payloads_come_back_as_they_were(stage: Stage, case: str) -> None:
    stage.enqueue(payload=[GOOD[case]] if case not in {"text", "64 levels"} else GOOD[case])
    got = stage.worker().claim_one().payload
    assert got == ([GOOD[case]] if case not in {"text", "64 levels"} else GOOD[case])


def test_a_pydantic_model_is_a_payload(stage: Stage) -> None:
    class Line(pydantic.BaseModel):
        at: datetime
        n: int

    stage.enqueue(payload=Line(at=datetime(2020, 1, 1, tzinfo=UTC), n=1))
    assert stage.worker().claim_one().payload == {"at": "2020-01-01T00:00:00Z", "n": 1}


# --- failures are recorded whatever they say ---

ERRORS = [
    "",
    "x" * 100_000,
    "nul \x00 inside",
    "lone \ud800 surrogate",
    "😀" * 5000,
    "'; DROP TABLE jobs; --",
    "%s %(x)s",
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_any_error_text_is_recorded_bounded(stage: Stage, number: int) -> None:
    text = ERRORS[number]
    job = stage.enqueue()
    claimed = stage.worker().claim_one()
    assert queue.fail(stage.conn, job, claimed.token, text, outcome="dead", reason=text).result == "dead"
    facts = stage.job(job)
    assert facts.last_error is not None
    assert len(facts.last_error) <= 2000
    assert facts.last_error[:4] == text[:4]
    assert len(facts.reason or "") <= 2000


def test_any_reason_of_a_release_is_recorded(direct: Stage) -> None:
    job = direct.enqueue()
    claimed = direct.worker().claim_one()
    assert queue.release(direct.conn, job, claimed.token, reason="\x00\ud800" * 5000) == "released"
    assert direct.one("SELECT length(reason) FROM jobqueue.attempt") == 2000


def test_plain_sql_errors_are_bounded_too(direct: Stage) -> None:
    job = direct.enqueue()
    claimed = direct.worker().claim_one()
    direct.admin.execute("SELECT jobqueue.fail(%s, %s, repeat('x', 5000), 'dead')", [job, claimed.token])
    assert len(direct.job(job).last_error or "") == 2000


@pytest.mark.parametrize(
    "state",
    [
        "(repeat('[', 3000) || repeat(']', 3000))::jsonb",
        "'[1e5000]'::jsonb",
        "to_jsonb(repeat('x', 262144))",
        "null",
    ],
)
def test_a_checkpoint_that_could_not_be_read_back_is_refused(direct: Stage, state: str) -> None:
    job = direct.enqueue()
    claimed = direct.worker().claim_one()
    with pytest.raises(psycopg.DatabaseError) as refused:
        direct.admin.execute(f"SELECT jobqueue.checkpoint(%s, %s, {state})", [job, claimed.token])
    assert refused.value.sqlstate == "JQ003"
    assert queue.complete(direct.conn, job, claimed.token) == "done"


# --- the other verbs' arguments ---


@pytest.mark.parametrize("outcome", ["done", "lost", ""])
def test_fail_takes_three_outcomes(direct: Stage, outcome: str) -> None:
    job = direct.enqueue()
    claimed = direct.worker().claim_one()
    with pytest.raises(InvalidInput, match="outcome: "):
        queue.fail(direct.conn, job, claimed.token, "boom", outcome=outcome)
    assert direct.status(job) == "running"


@pytest.mark.parametrize("after", [timedelta(seconds=-1), timedelta(days=366)])
def test_retry_after_is_bounded(direct: Stage, after: timedelta) -> None:
    job = direct.enqueue()
    claimed = direct.worker().claim_one()
    with pytest.raises(InvalidInput, match="retry_after: "):
        queue.fail(direct.conn, job, claimed.token, "boom", retry_after=after)


@pytest.mark.parametrize("until", ["infinity", "-infinity", "0044-03-15 BC", "294276-01-01"])
def test_snooze_until_a_time_that_can_come(direct: Stage, until: str) -> None:
    job = direct.enqueue()
    claimed = direct.worker().claim_one()
    with pytest.raises(psycopg.DatabaseError, match="until: "):
        direct.admin.execute("SELECT jobqueue.snooze(%s, %s, %s)", [job, claimed.token, until])
    assert direct.status(job) == "running"


@pytest.mark.parametrize("max_jobs", [0, -1, 10_001])
def test_claim_takes_1_to_10_000(direct: Stage, max_jobs: int) -> None:
    with pytest.raises(InvalidInput, match="max_jobs: "):
        direct.worker().claim(max_jobs)


@pytest.mark.parametrize("lease", [timedelta(0), timedelta(seconds=-1), timedelta(days=2)])
def test_leases_are_bounded(direct: Stage, lease: timedelta) -> None:
    worker = direct.worker()
    direct.enqueue()
    with pytest.raises(InvalidInput, match="lease: "):
        worker.claim(lease=lease)
    claimed = worker.claim_one()
    with pytest.raises(InvalidInput, match="lease: "):
        queue.extend(direct.conn, worker.id, [claimed.id], [claimed.token], lease=lease)


SETTINGS: dict[str, Any] = {
    "lease_seconds": [0, -1, 1e9, "60", None, True],
    "timeout_seconds": [0, 1e9],
    "max_attempts": [0, 1001, 1.5, "3"],
    "backoff_initial_seconds": [0, -5],
    "backoff_factor": [0, 0.5, 1000, -1],
    "backoff_max_seconds": [0.001, 1e8],
    "concurrency": [0, 100_000],
    "fair_tenants": [1, "yes"],
    "tenant_limit": [0, -1],
    "key_limit": [0],
    "units_per_job": [0, 40_000],
    "units_per_pod": [-1],
    "target_age_seconds": [0],
    "done_retention_seconds": [-1],
    "colour": ["red"],
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_class_refuses_impossible_settings(direct: Stage, setting: str) -> None:
    before = direct.one("SELECT to_jsonb(c) FROM jobqueue.class c WHERE name = 'c'")
    for value in SETTINGS[setting]:
        with pytest.raises(InvalidInput, match=f"^{setting}: "):
            direct.define("c", **{setting: value})
    assert direct.one("SELECT to_jsonb(c) FROM jobqueue.class c WHERE name = 'c'") == before


@pytest.mark.parametrize("name", ["", "A", "a b", "-a", "a" * 64, "é", "a\n"])
def test_a_class_name_is_checked(direct: Stage, name: str) -> None:
    with pytest.raises(InvalidInput, match=r"^name: "):
        direct.define(name)


def test_downstreams_are_checked(direct: Stage) -> None:
    with pytest.raises(InvalidInput, match="unit_limit"):
        queue.set_downstream(direct.admin, None, "api", -1)
    with pytest.raises(InvalidInput, match="name"):
        queue.set_downstream(direct.admin, None, "", 1)
    with pytest.raises(UnknownDownstream, match="'api'"):
        direct.define("c", downstream="api")


def test_arrays_of_different_lengths_are_refused(direct: Stage) -> None:
    with pytest.raises(psycopg.DatabaseError, match="as many elements as classes"):
        direct.admin.execute("SELECT jobqueue.enqueue_many('{c,c}', '{k}', array['{}'::jsonb])")
    assert queue.enqueue_many(direct.conn, []) == []


def test_ten_thousand_in_one_call_and_not_more(direct: Stage) -> None:
    jobs = [NewJob("c", "work", {})] * 10_001
    with pytest.raises(InvalidInput, match="at most 10000"):
        queue.enqueue_many(direct.conn, jobs)
    assert len(queue.enqueue_many(direct.conn, jobs[:-1])) == 10_000
