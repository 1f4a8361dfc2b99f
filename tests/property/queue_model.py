"""What the queue should do, in memory: one job, one worker, and the whole, moved by the same verbs.

Time is a number of seconds that only `Model.now` moves. Leases last 35 or 75 s, waits 30 s, and time passes in
multiples of 20 s, so that the real seconds a sequence takes decide nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

REFUNDS = 10
WORKER_SILENCE = 600.0  # seconds unheard of, holding nothing, until the sweep takes a worker for gone


@dataclass
class ClassRules:
    """The settings of a class that decide what a claim may take."""

    name: str
    key_limit: int
    fair: bool = False
    tenant_limit: int | None = None
    capped: bool = False
    paused: bool = False


@dataclass
class Job:
    """One job, and everything that ever happened to it."""

    id: int
    class_: str
    kind: str
    priority: int
    max_attempts: int
    due: float
    payload: int
    key: str | None
    tenant: str | None
    concurrency_key: str | None
    status: str = "pending"
    attempts: int = 0
    refunds: int = 0
    budget: int = 0
    suspect: bool = False
    cancel: bool = False
    redacted: bool = False
    token: int = 0
    worker: int = 0
    until: float = 0.0
    lease_due: float = 0.0
    checkpoint: int | None = None
    tokens: dict[int, str] = field(default_factory=dict)  # every token ever, and how its attempt ended
    history: list[tuple[int, int, str]] = field(default_factory=list)  # budget, number, outcome


@dataclass
class Worker:
    """One worker."""

    id: int
    name: str
    class_: str
    kinds: tuple[str, ...]
    state: str = "active"
    seen: float = 0.0
    request: int = 0
    fence: int = -1


@dataclass
class Model:
    """The queue."""

    classes: dict[str, ClassRules]
    unit_limit: int
    now: float = 0.0
    jobs: dict[int, Job] = field(default_factory=dict)
    workers: dict[int, Worker] = field(default_factory=dict)
    gone: dict[int, Worker] = field(default_factory=dict)
    keys: dict[tuple[str, str], Job] = field(default_factory=dict)
    effects: set[str] = field(default_factory=set)
    losses: int = 0

    # --- questions ---

    def running(self) -> list[Job]:
        """Return the jobs under a lease, expired ones included."""
        return [j for j in self.jobs.values() if j.status == "running"]

    def owns(self, job: Job, token: int) -> bool:
        """Tell whether the token is the current one and its time is not over."""
        return job.status == "running" and job.token == token and job.until > self.now

    def free_units(self) -> int:
        """Return the capped class's free units: each of its leases counts, expired ones too."""
        used = sum(1 for j in self.running() if self.classes[j.class_].capped)
        return max(0, self.unit_limit - used)

    def blocked(self, job: Job) -> bool:
        """Tell whether a limit of its key or tenant stands against starting a job now."""
        rules = self.classes[job.class_]
        mates = [j for j in self.running() if j.class_ == job.class_]
        if job.concurrency_key is not None:
            same = sum(1 for j in mates if j.concurrency_key == job.concurrency_key)
            if same >= rules.key_limit:
                return True
        if rules.fair and rules.tenant_limit is not None and job.tenant is not None:
            return sum(1 for j in mates if j.tenant == job.tenant) >= rules.tenant_limit
        return False

    def candidates(self, worker: Worker) -> list[Job]:
        """Return what a worker might be given: due, understood, of its class."""
        if self.classes[worker.class_].paused:
            return []
        return [
            j
            for j in self.jobs.values()
            if j.status == "pending" and j.class_ == worker.class_ and j.kind in worker.kinds and j.due <= self.now
        ]

    # --- moves ---

    def start(self, job: Job, worker: Worker, token: int, lease: float) -> None:
        """Claim: the attempt is counted here."""
        job.status, job.token, job.worker = "running", token, worker.id
        job.until, job.lease_due = self.now + lease, job.due
        job.attempts += 1
        job.cancel = False
        job.tokens[token] = "running"

    def end_attempt(self, job: Job, how: str, due: float) -> str:
        """End an attempt without success; returns what became of it, as `put_back` says it."""
        refund = how in {"released", "snoozed"} and job.refunds < REFUNDS
        final = ""
        if how in {"dead", "cancelled"}:
            final = how
        elif job.cancel:
            final = "cancelled"
        elif not refund and job.attempts >= job.max_attempts:
            final = "dead"
        outcome = final or how
        if how == "lost":
            self.losses += 1
            outcome = "cancelled" if final == "cancelled" else "lost"
        job.history.append((job.budget, job.attempts, outcome))
        job.tokens[job.token] = "lost" if how == "lost" else outcome
        if final:
            job.status = final
            return final
        job.status, job.due = "pending", due
        job.suspect = how == "lost" or (job.suspect and how in {"released", "snoozed"})
        if refund:
            job.attempts -= 1
            job.refunds += 1
        return "spent" if how in {"released", "snoozed"} and not refund else how

    def finish(self, job: Job) -> None:
        """Complete."""
        job.status = "done"
        job.history.append((job.budget, job.attempts, "done"))
        job.tokens[job.token] = "done"

    def redrive(self, job: Job, *, force: bool) -> str:
        """Bring an ended job back; returns the verb's answer."""
        if job.status in {"pending", "running"}:
            return f"skipped: {job.status}"
        if job.status == "done" and not force:
            return "skipped: done"
        if job.redacted:
            return "skipped: redacted"
        job.status, job.due = "pending", self.now
        job.attempts = job.refunds = 0
        job.budget += 1
        job.suspect = False
        return "redriven"

    def lose(self, job: Job) -> str:
        """Let a worker have vanished with this job."""
        return self.end_attempt(job, "lost", min(job.until, self.now))

    def sweep(self) -> tuple[int, int, int]:
        """Take over expired leases, and take silent workers for gone."""
        ends = [self.lose(j) for j in self.running() if j.until <= self.now]
        busy = {j.worker for j in self.running()}
        for worker in self.workers.values():
            if worker.id not in busy and self.now - worker.seen >= WORKER_SILENCE:
                worker.state = "gone"
        return ends.count("lost"), ends.count("dead"), ends.count("cancelled")
