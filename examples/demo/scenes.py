"""The demo's scenes, in their order. Each says what happens, does it, and waits with a bound until it has happened."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import inputs
import product
import summary
from check import Name
from jobs import TABLES

import scaling
from jobqueue import queue

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    import psycopg
    from downstream import Downstream
    from inputs import Input
    from load import Load
    from narrate import Narrator
    from product import Up

AT_MOST = 105.0
"""Seconds that the story may take before it is broken off."""
PAUSE = 0.2
"""Seconds between two looks at what is going on."""
KILLS_MOST = 3
"""Workers that are killed at most, until one held jobs at that moment."""


class Broken(Exception):  # noqa: N818 - reads as a fact
    """The story cannot go on. The message says what did not happen."""


@dataclass
class Stage:
    """Everything the scenes play with, and what they found out."""

    narrator: Narrator
    found: Input
    conn: psycopg.Connection[Any]
    up: Up
    downstream: Downstream
    load: Load
    trickling: bool = False
    rounds: int = 1
    poison: int = 0
    poison_died_after: int = 0
    first_start: float = 0.0
    enqueued_twice: int = 0
    replaced: int = 0
    workers: int = 0
    restart_spent: int = 0
    killed: str = ""
    woken: float | None = None
    at_zero: float | None = None

    def one(self, query: str, *parameters: object) -> Any:
        """Return the first column of a query's first row, or None."""
        row = self.conn.execute(query, parameters).fetchone()
        return row[0] if row else None

    def until(self, condition: Callable[[], object], what: str, within: float) -> None:
        """Wait for `condition`, showing progress and feeding the trickle. Broken after `within` seconds."""
        deadline = time.monotonic() + within
        while not condition():
            complaint = self.up.complaint()
            if complaint:
                raise Broken(complaint)
            if time.monotonic() > deadline:
                raise Broken(f"waited {within:g} s for this, and it did not happen: {what}")
            if self.narrator.elapsed > AT_MOST:
                raise Broken(f"more than {AT_MOST:g} s have passed while waiting for this: {what}")
            self._look()
            time.sleep(PAUSE)

    def _look(self) -> None:
        self.up.notice_processes()
        if not self.load.enqueued:
            return
        seen = {entry["class"]: entry for entry in queue.snapshot(self.conn)["classes"]}
        if self.trickling:
            self.load.trickle(self.conn, seen["slow"]["ready"])
        ready = sum(entry["ready"] for entry in seen.values())
        running = sum(entry["in_flight"] for entry in seen.values())
        done = self.one("SELECT count(*) FROM demo.result")
        self.narrator.progress(
            f"{done:,} done · {running} running · {ready:,} waiting · {self.downstream.now} at the downstream"
        )


def play(stage: Stage) -> int:
    """Play every scene, then sum up and check. Return the exit status."""
    begin(stage)
    burst(stage)
    rolling_restart(stage)
    kill(stage)
    redrive(stage)
    work_off(stage)
    to_zero(stage)
    drain(stage)
    return summary.conclude(stage)


def introduce(tell: Narrator, found: Input) -> None:
    """Say what the input is."""
    tell.title("A job queue in PostgreSQL, its workers, and what can go wrong")
    tell.step("input", f"{found.folder}: {len(found.files):,} of {found.found:,} files, {inputs.readable(found.size)}")
    for remark in found.remarks():
        tell.detail(remark)
    tell.step("database", "an embedded PostgreSQL, in a temporary folder")


def begin(stage: Stage) -> None:
    """Start the workers."""
    tell = stage.narrator
    stage.conn.execute(TABLES)
    tell.step("start", "$ jobqueue up -f examples/demo/jobqueue.yaml")
    stage.up.start()
    stage.until(lambda: 0 < stage.up.wanted() <= stage.up.ready(), "every worker is ready", 30)
    pools = ", ".join(f"{entry['workers_ready']} {entry['class']}" for entry in stage.up.classes)
    tell.detail(f"{stage.up.ready()} workers are up ({pools}), PostgreSQL {stage.conn.info.server_version // 10000}")


def burst(stage: Stage) -> None:
    """Enqueue everything at once, and the poison job by command; see that work starts."""
    tell = stage.narrator
    began = time.monotonic()
    stage.rounds, committed = stage.load.burst(stage.conn)
    burst_jobs = len(stage.load.enqueued)
    tell.step(
        "burst",
        f"{burst_jobs:,} jobs in one transaction, {time.monotonic() - began:.2f} s: each file to hash, and to compress",
    )
    if stage.rounds > 1:
        tell.detail(f"few files, so each is worked on {stage.rounds:,} times; every round has results of its own")
    stage.until(lambda: stage.one("SELECT min(started_at) FROM jobqueue.jobs") is not None, "a job starts", 15)
    first = stage.one("SELECT min(started_at) FROM jobqueue.jobs")
    stage.first_start = (first - committed).total_seconds()
    tell.detail(f"the first job started {stage.first_start * 1000:,.0f} ms after the commit; they poll every 10 s")
    stage.until(lambda: stage.up.came_up(scaling.CLASS), f"a worker for the class {scaling.CLASS}, at zero", 15)
    stage.woken = (stage.up.came_up(scaling.CLASS) or 0.0) - committed.timestamp()
    tell.detail(f"{scaling.CLASS} had no worker: its first process came {stage.woken * 1000:,.0f} ms after the commit")
    stage.enqueued_twice = stage.load.again(stage.conn)
    tell.detail(f"500 of them enqueued again under the same keys: {stage.enqueued_twice} created")
    stage.poison = _enqueue_poison(stage)
    stage.load.enqueued[stage.poison] = Name("demo.poison", 1, 0)
    tell.step("poison", "$ jobqueue enqueue slow demo.poison '{}' --priority 100")
    tell.detail(f"job {stage.poison} kills the process it runs in, every time")


def rolling_restart(stage: Stage) -> None:
    """Replace every worker in the middle of the work."""
    tell, up = stage.narrator, stage.up
    stage.trickling = True
    tell.step("rolling restart", "$ kill -HUP: every worker is replaced, one out, one in, while more arrives")
    stage.until(lambda: up.ready() >= up.wanted() > 0, "every worker is ready", 30)
    old = up.workers("started") - up.workers("drained")
    stage.workers = len(old)
    began = stage.one("SELECT clock_timestamp()")
    up.restart_workers()
    stage.until(
        lambda: old <= up.workers("drained") and up.ready() >= up.wanted(),
        "every worker is replaced",
        45,
    )
    stage.replaced = len(old & up.workers("drained"))
    stage.restart_spent = stage.one(
        "SELECT count(*) FROM jobqueue.attempts WHERE outcome IN ('lost', 'retry', 'dead') AND job_id <> %s"
        " AND finished_at >= %s",
        stage.poison,
        began,
    )
    tell.detail(f"{stage.replaced} of {stage.workers} replaced; {stage.restart_spent} attempts spent on it")
    tell.detail(f"{scaling.CLASS} has {up.count(scaling.CLASS)} workers now, {up.most[scaling.CLASS]} at most so far")


def kill(stage: Stage) -> None:
    """Kill a worker that holds jobs, and wait until they are noticed as lost."""
    tell, up = stage.narrator, stage.up
    for _ in range(KILLS_MOST):
        name = _busiest(stage)
        held = stage.one(
            "SELECT count(*) FROM jobqueue.attempts WHERE outcome = 'running' AND worker LIKE %s", f"{name}%"
        )
        began = stage.one("SELECT clock_timestamp()")
        pid = up.kill_worker(name)
        tell.step("kill -9", f"{name}, process {pid}, while it holds {held} jobs")
        stage.until(partial(_up_again, stage, name, began), "it is started again", 40)
        lost = _lost(stage, name)
        if lost:
            stage.killed = name
            ended = "; the others had just ended" if held > lost else ""
            tell.detail(f"it is up again; {lost} jobs were lost with it and are ready again, to run alone{ended}")
            return
        tell.detail("it had just finished what it held; another try")
    raise Broken(f"{KILLS_MOST} workers were killed, and none held a job at that moment")


def _up_again(stage: Stage, name: str, since: datetime) -> bool:
    return bool(
        stage.one(
            "SELECT EXISTS"
            " (SELECT FROM jobqueue.workers WHERE name LIKE %s AND state = 'active' AND registered_at > %s)",
            f"{name}%",
            since,
        )
    )


def _busiest(stage: Stage) -> str:
    alive = {name for name in stage.up.workers("started") - stage.up.workers("drained") if name.startswith("slow-")}
    running: Counter[str] = Counter()

    def look() -> bool:
        running.clear()
        for (registered,) in stage.conn.execute("SELECT worker FROM jobqueue.attempts WHERE outcome = 'running'"):
            running.update(name for name in alive if registered.startswith(name))
        return bool(running)

    stage.until(look, "a slow worker holds a job", 15)
    return running.most_common(1)[0][0]


def _lost(stage: Stage, name: str) -> int:
    return int(
        stage.one(
            "SELECT count(*) FROM jobqueue.attempts WHERE outcome = 'lost' AND job_id <> %s AND worker LIKE %s",
            stage.poison,
            f"{name}%",
        )
    )


def _enqueue_poison(stage: Stage) -> int:
    said = product.run(stage.up.dsn, "enqueue", "slow", "demo.poison", "{}", "--priority", "100", "--json")
    return int(json.loads(said)["id"])


def redrive(stage: Stage) -> None:
    """Find the poison job dead, repair what made it one, and redrive it."""
    tell = stage.narrator
    stage.until(lambda: _status(stage) == "dead", "the poison job is dead", 30)
    row = stage.conn.execute("SELECT attempts, reason FROM jobqueue.jobs WHERE id = %s", [stage.poison]).fetchone()
    stage.poison_died_after, reason = row or (0, "")
    tell.step("dead", f"the poison job {stage.poison} is dead after {stage.poison_died_after} attempts: {reason}")
    tell.detail(f"$ jobqueue show {stage.poison}")
    for line in product.run(stage.up.dsn, "show", str(stage.poison)).partition("\n\n")[2].splitlines():
        tell.detail(line)
    stage.conn.execute("UPDATE demo.poison SET repaired = true")
    tell.step("redrive", f"its cause is repaired; $ jobqueue redrive {stage.poison}")
    product.run(stage.up.dsn, "redrive", str(stage.poison))
    stage.until(lambda: _status(stage) == "done", "the redriven job is done", 20)
    tell.detail("it is done")


def _status(stage: Stage) -> str:
    return str(stage.one("SELECT status FROM jobqueue.jobs WHERE id = %s", stage.poison))


def work_off(stage: Stage) -> None:
    """No more work arrives; wait until none is left."""
    stage.trickling = False
    stage.narrator.step("work off", "no more work arrives")
    stage.until(
        lambda: not stage.one("SELECT EXISTS (SELECT FROM jobqueue.jobs WHERE status IN ('pending', 'running'))"),
        "the queue is worked off",
        AT_MOST,
    )
    stage.narrator.detail("nothing waits, nothing runs")


def to_zero(stage: Stage) -> None:
    """See the class that was woken go back to zero."""
    stage.narrator.step("idle", f"{scaling.CLASS} has nothing to do, and goes back to zero")
    stage.until(lambda: stage.up.count(scaling.CLASS) == 0, f"no worker of {scaling.CLASS} is left", 40)
    stage.at_zero = stage.one(
        "SELECT extract(epoch FROM clock_timestamp() - max(finished_at))::float8 FROM jobqueue.jobs WHERE class = %s",
        scaling.CLASS,
    )
    stage.narrator.detail(f"none is left, {stage.at_zero:.1f} s after its last job")


def drain(stage: Stage) -> None:
    """End the workers as a cluster does."""
    stage.narrator.still()
    stage.narrator.step("drain", "$ kill -TERM: every worker drains and ends")
    stage.up.stop()
