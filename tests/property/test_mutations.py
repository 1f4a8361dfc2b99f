"""Each test of the queue's promises fails when its line is broken: the line is broken here, and the test is run.

Long, and so only with JOBQUEUE_MUTATIONS=1: a copy of the package gets one change in one SQL file, and a pytest of its
own runs the test that must notice.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
QUEUE = "tests/integration/queue/"


class Mutation(NamedTuple):
    """Replace `old` by `new` in a schema file, and `test` (file and name, or a part of it) must fail."""

    file: str
    old: str
    new: str
    test: str


MUTATIONS = [
    # 1 visible before the commit, or to nobody
    Mutation(
        "0002_enqueue", "COALESCE(j.run_after <= moment, true) AND EXISTS", "EXISTS", "test_01*::later_wakes_nobody"
    ),
    Mutation(
        "0002_enqueue",
        "IF EXISTS (SELECT FROM __SCHEMA__.sleeper s WHERE s.class_id = cls.id) AND",
        "IF",
        "test_01*::nobody_asleep",
    ),
    # 2 tokens
    Mutation(
        "0004_leases",
        "x.id = own.id AND x.token = own.token FOR UPDATE",
        "x.id = own.id FOR UPDATE",
        "test_02_every*::wrong_token",
    ),
    Mutation(
        "0004_leases",
        "WHERE l.id = g.id AND l.token = g.token AND l.leased_until >",
        "WHERE l.id = g.id AND l.leased_until >",
        "test_02_every*::wrong_token",
    ),
    Mutation(
        "0004_leases",
        "l.id = hold.id AND l.token = hold.token FOR KEY SHARE",
        "l.id = hold.id FOR KEY SHARE",
        "test_02_every*::wrong_token",
    ),
    Mutation(
        "0004_leases",
        "l.token = g.token AND l.worker_id = extend.worker FOR NO KEY",
        "true FOR NO KEY",
        "test_02_every*::extend_answers",
    ),
    Mutation(
        "0004_leases",
        "'{done}') THEN 'already'",
        "'{}') THEN 'already'",
        "test_02_connections*::lost_reply_to_complete",
    ),
    Mutation(
        "0004_leases",
        "'{retry,lost,dead,cancelled}') THEN 'already'",
        "'{}') THEN 'already'",
        "test_02_connections*::lost_reply_to_fail",
    ),
    Mutation(
        "0004_leases",
        "AND (o.reason, o.last_error) IS DISTINCT FROM ('worker lost', 'worker lost')",
        "",
        "test_02_every*::nobodys_answer",
    ),
    Mutation(
        "0003_claim", "IF claim.request <= me.request_floor THEN", "IF false THEN", "test_02_every*::recover_fences"
    ),
    Mutation("0003_claim", "w.id = claim.worker FOR SHARE", "w.id = claim.worker", "test_02_every*::recover_waits"),
    # 3 expiry
    Mutation(
        "0004_leases",
        "IF l.leased_until > clock_timestamp() THEN RETURN l; END IF;",
        "RETURN l;",
        "test_03*::refused_after_the_end",
    ),
    Mutation(
        "0004_leases",
        "IF l.leased_until > clock_timestamp() THEN RETURN l; END IF;",
        "IF l.leased_until > now() THEN RETURN l; END IF;",
        "test_03*::clock_is_read_after_the_row",
    ),
    Mutation("0004_leases", "IF late AND NOT patient THEN", "IF false THEN", "test_03*::clock_is_read_after_the_row"),
    Mutation(
        "0004_leases",
        "IF until IS NULL OR until <= clock_timestamp() THEN",
        "IF until IS NULL THEN",
        "test_03*::refused_after_the_end",
    ),
    Mutation(
        "0004_leases", "l.token = hold.token FOR KEY SHARE", "l.token = hold.token", "test_03*::sweep_leaves_a_lease"
    ),
    Mutation(
        "0004_leases", "FOR NO KEY UPDATE OF l SKIP LOCKED", "FOR NO KEY UPDATE OF l", "test_03*::extend_does_not_wait"
    ),
    Mutation(
        "0004_leases",
        "FROM unnest(ids, tokens) AS u(id, token) ORDER BY u.id LOOP",
        "FROM unnest(ids, tokens) AS u(id, token) LOOP",
        "test_03*::order_of_ids",
    ),
    Mutation("0003_claim", "LIMIT width FOR UPDATE SKIP LOCKED", "LIMIT width", "test_03*::claims_do_not_wait"),
    # 4 attempts and refunds
    Mutation("0003_claim", "g.attempts + 1, g.refunds", "g.attempts, g.refunds", "test_04*::counts_the_attempt"),
    Mutation("0004_leases", "l.refunds < 10", "l.refunds < 11", "test_04*::ten_refunds"),
    Mutation("0004_leases", "CASE WHEN how = 'lost' OR (l.suspect", "CASE WHEN (l.suspect", "test_04*::comes_alone"),
    Mutation("0003_claim", "IF claim.request % 2 = 0 THEN", "IF true THEN", "test_04*::starve"),
    # 5 ends
    Mutation(
        "0006_support", "IF o.status = 'd' AND NOT force THEN RETURN 'done'; END IF;", "", "test_05*::only_by_force"
    ),
    Mutation(
        "0007_upkeep",
        "x.id = job AND x.leased_until <= clock_timestamp() FOR UPDATE SKIP LOCKED;\n"
        "      CONTINUE WHEN NOT FOUND OR l.leased_until > clock_timestamp();",
        "x.id = job FOR UPDATE SKIP LOCKED;\n      CONTINUE WHEN NOT FOUND;",
        "test_05*::looks_at_each_row_again",
    ),
    Mutation(
        "0007_upkeep", "EXCEPTION WHEN OTHERS THEN", "EXCEPTION WHEN division_by_zero THEN", "test_05*::one_bad_row"
    ),
    # 6 the maximum
    Mutation(
        "0004_leases",
        "l.attempts >= b.max_attempts THEN final",
        "l.attempts > b.max_attempts THEN final",
        "test_06*::last_attempt_ends",
    ),
    # 7 the clock
    Mutation(
        "0003_claim",
        "moment   timestamptz := clock_timestamp();",
        "moment   timestamptz := now();",
        "test_07*::long_transaction_claims",
    ),
    # 8 units
    Mutation(
        "0003_claim",
        "WHERE d.id = cls.downstream_id FOR NO KEY UPDATE;",
        "WHERE d.id = cls.downstream_id;",
        "test_08*::second_claim_waits",
    ),
    Mutation(
        "0003_claim",
        "current_setting('transaction_isolation') <> 'read committed'",
        "false",
        "test_08*::snapshot_taken_before",
    ),
    Mutation(
        "0003_claim",
        "WHERE l.downstream_id = d.id), 0)\n    - COALESCE((SELECT sum(w.units)",
        "WHERE l.downstream_id = d.id AND l.leased_until > clock_timestamp()), 0)\n    - COALESCE((SELECT sum(w.units)",
        "test_08*::expired_leases_count",
    ),
    Mutation(
        "0003_claim",
        "AND w.state = 'waiting' AND w.units <= __SCHEMA__.worker_room(next_admitted.downstream)",
        "AND w.state = 'waiting'",
        "test_08*::does_not_starve",
    ),
    # 9 keys
    Mutation(
        "0002_enqueue", "IF owner.digest IS DISTINCT FROM hash THEN", "IF false THEN", "test_09*::another_payload"
    ),
    Mutation(
        "0002_enqueue",
        "WHERE j.key IS NOT NULL ORDER BY j.kind, j.key, j.ord",
        "WHERE j.key IS NOT NULL ORDER BY j.kind DESC, j.key DESC, j.ord",
        "test_09*::inserted_in_their_order",
    ),
    # 10 effects
    Mutation(
        "0004_leases",
        "    PERFORM __SCHEMA__.hold(effect.id, effect.token);\n    RETURN true;",
        "    RETURN true;",
        "test_10*::twin_is_waited_for_records_nothing",
    ),
    Mutation(
        "0007_upkeep",
        "k.recorded_at < moment - keep\n       AND NOT EXISTS (SELECT FROM __SCHEMA__.body b WHERE b.id = k.job_id)",
        "k.recorded_at < moment - keep",
        "test_10*::kept_while_the_job_is",
    ),
    # 11 input
    Mutation(
        "0002_enqueue",
        "WHEN jsonb_path_exists(payload, 'strict $.** ? (@ >= 1e1000 || @ <= -1e1000)', silent => true)",
        "WHEN false",
        "test_11*::plain_sql_names_the_field",
    ),
    Mutation("0004_leases", "SELECT left(value, 2000)", "SELECT value", "test_11*::bounded_too"),
    # 12 backoff
    Mutation("0001_tables", "make_interval(secs => random() *", "make_interval(secs => 1.0 *", "test_12*::uniform"),
    Mutation("0001_tables", "WHEN (GREATEST(attempts, 1) - 1) * ln(factor) >=", "WHEN 0 >", "test_12*::uniform"),
    Mutation("0006_support", "random() * spread, force) IS NULL", "spread, force) IS NULL", "test_12*::bulk_redrive"),
    # 13 age and depth
    Mutation(
        "0012_snapshot",
        "+ COALESCE((running->c.id::text->>'expired')::bigint, 0),\n        'scheduled'",
        ",\n        'scheduled'",
        "test_13*::expired_leases_count",
    ),
    # 14, keys, tenants, order
    Mutation(
        "0003_claim",
        "free := GREATEST(free, 0);",
        "free := GREATEST(free, 1);",
        "test_concurrency_keys*::at_most_the_limit",
    ),
    Mutation(
        "0003_claim",
        "CONTINUE WHEN NOT pg_try_advisory_xact_lock(__LOCK__ + cls.id, k.key_hash);\n        SELECT cls.key_limit",
        "SELECT cls.key_limit",
        "test_concurrency_keys*::never_both_see",
    ),
    Mutation(
        "0003_claim",
        "width := GREATEST(quota - cardinality(got), 500);",
        "width := quota - cardinality(got);",
        "test_concurrency_keys*::thousands",
    ),
    Mutation("0003_claim", "IF cls.paused THEN RETURN; END IF;", "", "test_order*::paused_class"),
    Mutation("0006_support", "IF b.redacted THEN RETURN 'redacted'; END IF;", "", "test_cancel*::each_state"),
    Mutation(
        "0005_workers",
        "IF check_epoch.epoch <> current.epoch THEN",
        "IF check_epoch.epoch > current.epoch THEN",
        "test_workers*::former_leader",
    ),
    Mutation(
        "0009_grants",
        "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA __SCHEMA__ FROM PUBLIC;",
        "",
        "test_roles*::public_has_nothing",
    ),
    Mutation(
        "0003_claim",
        "SET enable_seqscan = off SET enable_nestloop = off",
        "SET enable_indexscan = off",
        "test_plans*::whatever_the_backlog",
    ),
    Mutation(
        "0001_tables",
        "CREATE INDEX ready_claim ON __SCHEMA__.ready (class_id, priority, kind_version, lane, run_after, id);",
        "CREATE INDEX ready_claim ON __SCHEMA__.ready (class_id, priority, run_after, kind_version, lane, id);",
        "test_plans*::whatever_the_backlog",
    ),
    Mutation(
        "0007_upkeep",
        "WHERE x.id = ANY ($1)', o) USING kept;",
        "WHERE $1 IS NULL', o) USING kept;",
        "test_retention*::survivors_move",
    ),
    # and what only the walk sees
    Mutation("0004_leases", "(l.suspect AND how IN ('released', 'snoozed'))", "false", "state_machine"),
    Mutation(
        "0006_support",
        "COALESCE(__SCHEMA__.hash32(b.concurrency_key), 0), 0, 0, o.budget + 1",
        "0, 0, 0, o.budget + 1",
        "state_machine",
    ),
]


@pytest.mark.skipif(
    not os.environ.get("JOBQUEUE_MUTATIONS"), reason="JOBQUEUE_MUTATIONS=1 breaks each line: some minutes"
)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(len(MUTATIONS)), ids=lambda n: f"{n}-{MUTATIONS[n].test}")
def test_a_broken_line_is_noticed(number: int, tmp_path: Path) -> None:
    mutation = MUTATIONS[number]
    shutil.copytree(ROOT / "worker_image", tmp_path / "worker_image")
    [file] = (tmp_path / "worker_image/jobqueue/schema").glob(f"{mutation.file}.sql")
    text = file.read_text()
    assert mutation.old in text, "the line to break is not there any more"
    file.write_text(text.replace(mutation.old, mutation.new))
    if mutation.test == "state_machine":
        chosen = ["tests/property/test_state_machine.py"]
    else:
        pattern, _, name = mutation.test.partition("::")
        [where] = (ROOT / QUEUE).glob(f"{pattern}.py")
        chosen = [str(where.relative_to(ROOT)), "-k", name]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *chosen],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}/worker_image:{ROOT}/operator", "JOBQUEUE_SEED": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, f"nothing noticed it:\n{ran.stdout[-3000:]}{ran.stderr[-2000:]}"
