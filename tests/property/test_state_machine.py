"""All transitions of the queue, at random, against the model: statuses, attempts, refunds, owners, effects, keys.

JOBQUEUE_SEQUENCES (default 100) sequences of up to 40 steps; JOBQUEUE_SEED repeats a run, and is printed by each.
"""

from __future__ import annotations

import os
import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from integration.queue.conftest import EMPTY
from jobqueue import queue
from jobqueue.errors import KeyConflict, NotRedrivable, StaleLease, UnknownJob, WorkerRefused
from property.queue_model import ClassRules, Job, Model, Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.queue.stage import Stage

SEQUENCES = int(os.environ.get("JOBQUEUE_SEQUENCES", "100"))
STEPS = 40
SEED = int(os.environ.get("JOBQUEUE_SEED") or random.SystemRandom().randrange(2**32))

PLACES = """
SELECT id, 'pending', attempts, refunds, budget, lane = -1, 0, 0, lane < -1, key_hash <> 0 FROM jobqueue.ready
UNION ALL
SELECT id, 'running', attempts, refunds, budget, suspect, token, worker_id, cancel, key_hash <> 0 FROM jobqueue.lease
UNION ALL
SELECT id, CASE status WHEN 'd' THEN 'done' WHEN 'x' THEN 'dead' ELSE 'cancelled' END, attempts, refunds, budget,
       NULL, 0, 0, false, NULL FROM jobqueue.outcome
"""
HISTORY = (
    "SELECT job_id, budget, number, outcome FROM jobqueue.attempts ORDER BY job_id, started_at, finished_at NULLS LAST"
)
FROM_THE_START = """
SELECT setval('jobqueue.job_id', 1, false), setval(pg_get_serial_sequence('jobqueue.worker', 'id'), 1, false),
       setval(pg_get_serial_sequence('jobqueue.class', 'id'), 1, false),
       setval(pg_get_serial_sequence('jobqueue.downstream', 'id'), 1, false)
"""
PICK = st.integers(0, 30)
LEASES = st.sampled_from([35, 75])
JOBS = st.fixed_dictionaries(
    {
        "class_": st.sampled_from(["plain", "plain", "fair", "capped"]),
        "kind": st.sampled_from("aab"),
        "payload": st.integers(0, 1),
        "key": st.sampled_from([None, None, "k1", "k2"]),
        "priority": st.integers(-1, 1),
        "delay": st.sampled_from([0, 0, 0, 30]),
        "max_attempts": st.integers(1, 3),
        "tenant": st.sampled_from([None, "t1", "t2"]),
        "concurrency_key": st.sampled_from([None, None, "x", "y"]),
    }
)


class QueueMachine(RuleBasedStateMachine):
    """Each rule calls a verb, asks the model what should have happened, and compares."""

    checked = False  # a rule has compared everything itself, last
    stage: ClassVar[Stage]
    steps: ClassVar[dict[str, int]] = {}

    @initialize(limit=st.integers(1, 3), jobs=st.lists(JOBS, min_size=2, max_size=8))
    def begin(self, limit: int, jobs: list[dict[str, Any]]) -> None:
        # The same choices must meet the same numbers and the same chances when hypothesis repeats them.
        self.stage.admin.execute(EMPTY + FROM_THE_START)
        self.conn = self.stage.conn
        self.conn.execute("SELECT setseed(0.5)")
        self.parked: set[int] = set()
        self.model = Model(
            {
                "plain": ClassRules("plain", key_limit=1),
                "fair": ClassRules("fair", key_limit=2, fair=True, tenant_limit=2),
                "capped": ClassRules("capped", key_limit=1, capped=True),
            },
            unit_limit=limit,
        )
        queue.set_downstream(self.conn, None, "api", limit)
        for name, rules in self.model.classes.items():
            settings: dict[str, Any] = {"key_limit": rules.key_limit, "fair_tenants": rules.fair}
            if rules.fair:
                settings["tenant_limit"] = rules.tenant_limit
            if rules.capped:
                settings["downstream"] = "api"
            queue.set_class(self.conn, None, name, settings)
        for class_, kinds in (("plain", ("a", "b")), ("plain", ("a",)), ("fair", ("a", "b")), ("capped", ("a",))):
            self._register(class_, kinds)
        self.enqueue(jobs)

    # --- producers and people ---

    @rule(jobs=st.lists(JOBS, min_size=1, max_size=3))
    def enqueue(self, jobs: list[dict[str, Any]]) -> None:
        self._count("enqueue")
        for job in jobs:
            self._enqueue(**job)

    def _enqueue(
        self,
        *,
        class_: str,
        kind: str,
        payload: int,
        key: str | None,
        priority: int,
        delay: int,
        max_attempts: int,
        tenant: str | None,
        concurrency_key: str | None,
    ) -> None:
        due = self.stage.one("SELECT clock_timestamp() + make_interval(secs => %s)", [delay]) if delay else None
        known = self.model.keys.get((kind, key)) if key else None

        def call() -> queue.Enqueued:
            return queue.enqueue(
                self.conn,
                class_,
                kind,
                payload,
                key=key,
                run_after=due,
                priority=priority,
                max_attempts=max_attempts,
                tenant=tenant,
                concurrency_key=concurrency_key,
            )

        if known is not None and known.payload != payload:
            with pytest.raises(KeyConflict):
                call()
            return
        got = call()
        if known is not None:
            assert got == (known.id, False)
            return
        assert got.created
        assert got.id not in self.model.jobs
        job = Job(
            got.id,
            class_,
            kind,
            priority,
            max_attempts,
            self.model.now + delay,
            payload,
            key,
            tenant,
            concurrency_key,
        )
        self.model.jobs[job.id] = job
        if key:
            self.model.keys[kind, key] = job

    @rule(pick=PICK)
    def cancel(self, pick: int) -> None:
        self._count("cancel")
        job = self._job(pick)
        if job is None:
            with pytest.raises(UnknownJob):
                queue.cancel(self.conn, 10**15)
            return
        answer = queue.cancel(self.conn, job.id)
        if job.status == "pending":
            assert answer == "cancelled"
            job.status = "cancelled"
        elif job.status == "running":
            assert answer == "requested"
            job.cancel = True
        else:
            assert answer == "finished"

    @rule(pick=PICK, force=st.booleans())
    def redrive(self, pick: int, *, force: bool) -> None:
        self._count("redrive")
        job = self._job(pick)
        if job is None:
            return
        [answer] = queue.redrive(self.conn, [job.id], force=force)
        assert answer.result == self.model.redrive(job, force=force)

    @rule(pick=PICK)
    def redact(self, pick: int) -> None:
        self._count("redact")
        job = self._job(pick)
        if job is None:
            return
        if job.status in {"pending", "running"}:
            with pytest.raises(NotRedrivable):
                queue.redact(self.conn, [job.id])
            return
        assert queue.redact(self.conn, [job.id]) == 1
        job.redacted, job.checkpoint = True, None

    # --- workers ---

    def _register(self, class_: str, kinds: tuple[str, ...]) -> None:
        self._count("register")
        name = f"w{len(self.model.workers) + len(self.model.gone)}"
        got = queue.register_worker(self.conn, name, class_, [(k, 1) for k in kinds], slots=4)
        assert got.admitted
        assert got.worker not in self.model.workers
        self.model.workers[got.worker] = Worker(got.worker, name, class_, kinds, seen=self.model.now)

    @rule(picks=st.lists(PICK, min_size=1, max_size=3), max_jobs=st.integers(1, 4), lease=LEASES)
    def claims(self, picks: list[int], max_jobs: int, lease: int) -> None:
        for pick in picks:
            self.claim(pick, max_jobs, lease)

    @rule(pick=PICK, max_jobs=st.integers(1, 4), lease=LEASES)
    def claim(self, pick: int, max_jobs: int, lease: int) -> None:
        self._count("claim")
        worker = self._worker(pick)
        worker.request += 1

        def call() -> list[queue.Claimed]:
            return queue.claim(
                self.conn, worker.class_, worker.id, worker.request, max_jobs=max_jobs, lease=timedelta(seconds=lease)
            )

        if worker.state != "active" or worker.request <= worker.fence:
            with pytest.raises(WorkerRefused):
                call()
            return
        holds_one = any(j.worker == worker.id and j.suspect for j in self.model.running())
        candidates = {j.id: j for j in self.model.candidates(worker) if not (j.suspect and holds_one)}
        room = self.model.free_units() if self.model.classes[worker.class_].capped else max_jobs
        parked = set(self.parked)
        got = call()
        assert len(got) <= min(max_jobs, room)
        suspects = [c for c in got if c.suspect]
        assert not suspects or len(got) == 1
        for claimed in got:
            job = candidates.get(claimed.id)
            assert job is not None, f"job {claimed.id} was not there to be claimed"
            assert not self.model.blocked(job)
            assert claimed.suspect is job.suspect
            assert (claimed.checkpoint, claimed.payload) == (job.checkpoint, job.payload)
            self.model.start(job, worker, claimed.token, lease)
            assert claimed.attempt == job.attempts <= job.max_attempts
            assert len(job.tokens) == job_tokens(self.model, claimed.token)
        self.check()
        left = [j for j in candidates.values() if j.status == "pending" and not self.model.blocked(j)]
        left = [j for j in left if j.id not in self.parked]
        if not got and room > 0:
            assert left == [], "something could have been claimed"
        if suspects or self.parked - parked:
            return
        plain = [j for j in left if not j.suspect]
        if len(got) < min(max_jobs, room):
            assert plain == [], "the claim was not filled"
        mine = [self.model.jobs[c.id] for c in got]
        for other in plain:
            assert all(other.priority <= j.priority for j in mine), "a better priority was left behind"
            if not self.model.classes[worker.class_].fair:
                # Those due in the same second of the model come in the order of the steps that made them so.
                assert all(j.due <= other.due for j in mine if j.priority == other.priority), "an older one was left"

    @rule(pick=PICK)
    def heartbeat(self, pick: int) -> None:
        self._count("heartbeat")
        worker = self._worker(pick)
        got = queue.heartbeat(self.conn, worker.id)
        if worker.state == "gone":
            assert got.state == "unknown"
            return
        worker.seen = self.model.now
        assert got.state == worker.state
        assert got.paused is self.model.classes[worker.class_].paused
        assert got.cancel == sorted(j.id for j in self.model.running() if j.worker == worker.id and j.cancel)

    @rule(pick=PICK)
    def forget(self, pick: int) -> None:
        self._count("forget_worker")
        worker = self._worker(pick)
        held = [j for j in self.model.running() if j.worker == worker.id]
        assert queue.forget_worker(self.conn, worker.id) == len(held)
        for job in held:
            self.model.lose(job)
        worker.state = "gone"
        del self.model.workers[worker.id]
        self.model.gone[worker.id] = worker
        self._register(worker.class_, worker.kinds)

    @rule(pick=PICK, turns=st.integers(1, 3), lease=LEASES)
    def lose_and_give_back(self, pick: int, turns: int, lease: int) -> None:
        """Lose what a worker holds, and have its successor take the suspects and give them back."""
        self.claim(pick, 4, lease)
        class_ = self._worker(pick).class_
        self.forget(pick)
        for _ in range(turns):
            heir = next(n for n, w in reversed(list(enumerate(self.model.workers.values()))) if w.class_ == class_)
            self.claim(heir, 4, lease)
            self.release(0, 0)

    @rule(pick=PICK, knows=st.booleans(), ahead=st.integers(0, 2))
    def recover(self, pick: int, *, knows: bool, ahead: int) -> None:
        self._count("recover")
        worker = self._worker(pick)
        held = [j for j in self.model.running() if j.worker == worker.id and j.until > self.model.now]
        known = [j for j in held if knows and j.id % 2]
        request = worker.request + ahead

        def call() -> int:
            return queue.recover(self.conn, worker.id, request, [j.token for j in known])

        if worker.state == "gone":
            with pytest.raises(WorkerRefused):
                call()
            return
        unknown = [j for j in held if j not in known]
        assert call() == len(unknown)
        for job in unknown:
            self.model.end_attempt(job, "released", job.lease_due)
        worker.fence, worker.seen = max(worker.fence, request), self.model.now

    def _retire(self, pick: int, *, back: bool) -> None:
        worker = self._worker(pick)
        if back:
            got = queue.unretire_worker(self.conn, None, [worker.id])
            assert got == ([worker.id] if worker.state == "retired" else [])
            worker.state = "active" if worker.state == "retired" else worker.state
            return
        held = sum(1 for j in self.model.running() if j.worker == worker.id)
        worker.state = "retired" if worker.state == "active" else worker.state
        got_flight = queue.retire_worker(self.conn, None, [worker.id])
        assert got_flight == ({worker.id: held} if worker.state == "retired" else {})

    # --- writes of a claimed job, with a current, an old or a made-up token ---

    def _write(
        self, pick: int, which: int, call: Callable[[int, int], Any], repeats: set[str]
    ) -> tuple[Job, Any] | None:
        """Call, and return the job with the answer when the token was current; otherwise check the refusal."""
        job = self._held(pick) if which < 3 else self._job(pick)
        if job is None:
            return None
        token = job.token if which != 4 or not job.tokens else next(iter(job.tokens))
        token = token + 1 if which == 5 else token
        if self.model.owns(job, token):
            return job, call(job.id, token)
        if job.tokens.get(token) in repeats:
            assert call(job.id, token) == "already"
        else:
            with pytest.raises(StaleLease):
                call(job.id, token)
        return None

    @rule(pick=PICK, which=st.integers(0, 5))
    def complete(self, pick: int, which: int) -> None:
        self._count("complete")
        done = self._write(pick, which, lambda j, t: queue.complete(self.conn, j, t), {"done"})
        if done:
            assert done[1] == "done"
            self.model.finish(done[0])

    @rule(
        pick=PICK,
        which=st.integers(0, 5),
        outcome=st.sampled_from(["retry", "retry", "retry", "dead", "cancelled"]),
        after=st.sampled_from([0, 30]),
    )
    def fail(self, pick: int, which: int, outcome: str, after: int) -> None:
        self._count("fail")

        def call(job: int, token: int) -> str:
            wait = timedelta(seconds=after)
            return queue.fail(self.conn, job, token, "boom", outcome=outcome, retry_after=wait).result

        done = self._write(pick, which, call, {"retry", "dead", "cancelled"})
        if done:
            assert done[1] == self.model.end_attempt(done[0], outcome, self.model.now + after)

    @rule(pick=PICK, which=st.integers(0, 5))
    def release(self, pick: int, which: int) -> None:
        self._count("release")
        repeats = {"released", "dead", "cancelled"}
        done = self._write(pick, which, lambda j, t: queue.release(self.conn, j, t, reason="drain"), repeats)
        if done:
            assert done[1] == self.model.end_attempt(done[0], "released", done[0].lease_due)

    @rule(pick=PICK, times=st.integers(5, 12))
    def release_again_and_again(self, pick: int, times: int) -> None:
        """Shorten the way to the tenth refund: release, and have the same job back at once."""
        self._count("release many times")
        job = self._held(pick)
        if job is None:
            return
        worker = self.model.workers[job.worker]
        if worker.state == "active":
            self.model.classes[worker.class_].paused = False
            queue.set_paused(self.conn, None, worker.class_, paused=False)
        for _ in range(times):
            if not self.model.owns(job, job.token):
                return
            answer = queue.release(self.conn, job.id, job.token, reason="drain")
            assert answer == self.model.end_attempt(job, "released", job.lease_due)
            self.check()
            if worker.state != "active":
                return
            self.claim(list(self.model.workers).index(worker.id), 1, 35)

    @rule(pick=PICK, which=st.integers(0, 5))
    def snooze(self, pick: int, which: int) -> None:
        self._count("snooze")
        until = self.stage.one("SELECT clock_timestamp() + interval '30 seconds'")
        repeats = {"snoozed", "dead", "cancelled"}
        done = self._write(pick, which, lambda j, t: queue.snooze(self.conn, j, t, until), repeats)
        if done:
            assert done[1] == self.model.end_attempt(done[0], "snoozed", self.model.now + 30)

    @rule(pick=PICK, which=st.integers(0, 5), state=st.integers(0, 9))
    def checkpoint(self, pick: int, which: int, state: int) -> None:
        self._count("checkpoint")
        done = self._write(pick, which, lambda j, t: queue.checkpoint(self.conn, j, t, state), set())
        if done:
            done[0].checkpoint = state

    @rule(pick=PICK, which=st.integers(0, 5), key=st.sampled_from(["e1", "e2", "e3"]), commit=st.booleans())
    def effect(self, pick: int, which: int, key: str, *, commit: bool) -> None:
        self._count("effect")

        def call(job: int, token: int) -> bool:
            with self.conn.transaction(force_rollback=not commit):
                return queue.effect(self.conn, job, token, key)

        done = self._write(pick, which, call, set())
        if done:
            assert done[1] is (key not in self.model.effects)
            if commit:
                self.model.effects.add(key)

    @rule(pick=PICK, lease=LEASES, wrong=st.integers(0, 3))
    def extend(self, pick: int, lease: int, wrong: int) -> None:
        self._count("extend")
        jobs = self.model.running()
        if not jobs:
            return
        worker = self.model.workers[jobs[pick % len(jobs)].worker]
        mine = [j for j in jobs if j.worker == worker.id]
        tokens = [j.token + (1 if wrong == 0 and n == 0 else 0) for n, j in enumerate(mine)]
        answers = queue.extend(self.conn, worker.id, [j.id for j in mine], tokens, lease=timedelta(seconds=lease))
        assert {a.id for a in answers} == {j.id for j in mine}
        given = dict(zip((j.id for j in mine), tokens, strict=True))
        for answer in answers:
            job = self.model.jobs[answer.id]
            if self.model.owns(job, given[job.id]):
                assert (answer.result, answer.cancel) == ("extended", job.cancel)
                job.until = self.model.now + lease
            else:
                assert answer.result == "stale"

    # --- the world ---

    @rule()
    def sweep(self) -> None:
        self._count("sweep")
        got = queue.sweep(self.conn)
        assert (got.requeued, got.dead, got.cancelled) == self.model.sweep()
        self.check()
        for job_id in self.parked:
            assert self.model.blocked(self.model.jobs[job_id]) or self._others_unparked(self.model.jobs[job_id])

    def _others_unparked(self, job: Job) -> bool:
        """Tell whether the free places of a parked job's key are spoken for by jobs that are not parked."""
        return any(
            j.status == "pending" and j.id not in self.parked
            for j in self.model.jobs.values()
            if (j.class_, j.concurrency_key) == (job.class_, job.concurrency_key)
        )

    @rule(seconds=st.sampled_from([20, 20, 40, 60, 140, 600]))
    def time_passes(self, seconds: int) -> None:
        self._count("time passes")
        self.stage.pass_time(seconds)
        self.model.now += seconds

    @rule(what=st.sampled_from(["pause", "retire", "limit"]), pick=PICK, back=st.booleans(), limit=st.integers(1, 4))
    def operate(self, what: str, pick: int, *, back: bool, limit: int) -> None:
        """Do what an operator does, and undo it as often."""
        self._count(what)
        if what == "retire":
            self._retire(pick, back=back)
        elif what == "pause":
            rules = list(self.model.classes.values())[pick % 3]
            rules.paused = not back
            queue.set_paused(self.conn, None, rules.name, paused=rules.paused)
        else:
            queue.set_downstream(self.conn, None, "api", limit)
            self.model.unit_limit = limit

    # --- what must hold after each step ---

    @invariant()
    def agree(self) -> None:
        if hasattr(self, "model") and not self.checked:
            self.check()
        self.checked = False

    def check(self) -> None:
        self.checked = True
        rows = self.stage.admin.execute(PLACES).fetchall()
        assert len(rows) == len(self.model.jobs) == len({row[0] for row in rows}), "a job is in no place, or in two"
        self.parked = {row[0] for row in rows if row[1] == "pending" and row[8]}
        for job_id, status, attempts, refunds, budget, suspect, token, worker, flag, keyed in rows:
            job = self.model.jobs[job_id]
            assert (status, attempts, refunds, budget) == (job.status, job.attempts, job.refunds, job.budget), job
            assert attempts <= job.max_attempts
            assert keyed in (None, job.concurrency_key is not None), job
            if status == "running":
                assert (token, worker, flag, suspect) == (job.token, job.worker, job.cancel, job.suspect), job
            elif status == "pending":
                assert suspect is job.suspect, job

    def teardown(self) -> None:
        if not hasattr(self, "model"):
            return
        self.check()
        effects = {row[0] for row in self.stage.admin.execute("SELECT key FROM jobqueue.effect")}
        assert effects == self.model.effects
        keys = {
            (k, key): job
            for k, key, job in self.stage.admin.execute("SELECT kind, key, job_id FROM jobqueue.idempotency")
        }
        assert keys == {at: job.id for at, job in self.model.keys.items()}
        history: dict[int, list[tuple[int, int, str]]] = {}
        for job_id, budget, number, outcome in self.stage.admin.execute(HISTORY):
            if outcome != "running":
                history.setdefault(job_id, []).append((budget, number, outcome))
        for job in self.model.jobs.values():
            assert sorted(history.get(job.id, [])) == sorted(job.history), job
        assert (self.stage.one("SELECT sum(expirations) FROM jobqueue.tally") or 0) == self.model.losses

    # --- choices ---

    def _job(self, pick: int) -> Job | None:
        jobs = list(self.model.jobs.values())
        return jobs[pick % len(jobs)] if jobs else None

    def _held(self, pick: int) -> Job | None:
        jobs = self.model.running()
        return jobs[pick % len(jobs)] if jobs else None

    def _worker(self, pick: int) -> Worker:
        workers = list(self.model.workers.values())
        return workers[pick % len(workers)]

    def _count(self, step: str) -> None:
        self.steps[step] = self.steps.get(step, 0) + 1


def job_tokens(model: Model, token: int) -> int:
    """Return how many tokens the holder of `token` has had; a token is never used twice."""
    [holder] = [j for j in model.jobs.values() if token in j.tokens]
    return len(holder.tokens)


@pytest.mark.timeout(max(120, 5 * SEQUENCES))
def test_all_transitions_agree_with_the_model(direct: Stage) -> None:
    QueueMachine.stage = direct
    QueueMachine.steps = {}
    print(f"JOBQUEUE_SEED={SEED} JOBQUEUE_SEQUENCES={SEQUENCES}")  # noqa: T201 - to repeat the run
    run_state_machine_as_test(
        hypothesis.seed(SEED)(QueueMachine),
        settings=hypothesis.settings(
            max_examples=SEQUENCES,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            print_blob=True,
            suppress_health_check=list(hypothesis.HealthCheck),
        ),
    )
    print(f"divergences 0 in {SEQUENCES} sequences; steps: {QueueMachine.steps}")  # noqa: T201 - the report
    assert set(QueueMachine.steps) >= {"claim", "complete", "fail", "release", "sweep", "redrive", "effect", "cancel"}
