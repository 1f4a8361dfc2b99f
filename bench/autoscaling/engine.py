"""The discrete-event core: one FIFO of due jobs, pods of c slots that start late, drain, and die.

Between two decisions the set of slots changes only by what is known (pods that come up, slots that become free), so
jobs are dealt out to the earliest free slot by a heap, one step a job. Claims take no time. Simplified against the
queue: a lost lease is claimable from the moment it expires (the queue sweeps once a tick).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.autoscaling.load import Load, StartDelay

Return = tuple[float, int, int, int]
"""A job that comes back: when it is due, its number, the attempt it begins, and the start it comes from."""


@dataclass(slots=True)
class Pod:
    """One worker. `closed`: claims nothing any more."""

    number: int
    created: float
    ready_at: float
    slots: range
    closed: bool = False
    ending: bool = False
    """It was told to stop, and goes when its jobs are done."""
    gone_at: float = inf

    @property
    def name(self) -> str:
        """What the planner calls it."""
        return f"pod-{self.number}"


@dataclass(slots=True)
class Log:
    """Every attempt in the order of starts, and every pod."""

    due: list[float] = field(default_factory=list)
    start: list[float] = field(default_factory=list)
    end: list[float] = field(default_factory=list)
    job: list[int] = field(default_factory=list)
    attempt: list[int] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    """Attempts, by their place in the lists, that were cut off."""
    failed: set[int] = field(default_factory=set)
    killed: int = 0
    """Attempts cut off by a decision to scale in, not by a fault."""
    actions: int = 0
    """Decisions that changed the number of pods."""


class Engine:
    """The state of one run, moved on by `advance`, changed by `create`, `close`, `reopen` and `end`."""

    def __init__(self, load: Load, delay: StartDelay) -> None:
        self.load = load
        self.delay = delay
        self.now = 0.0
        self.log = Log()
        self.pods: list[Pod] = []
        self.alive: list[Pod] = []
        self._due = [*load.due.tolist(), inf]
        self._service = load.service.tolist()
        self._failures = load.failures.tolist() if load.failures is not None else None
        self._next = 0
        self._returns: list[Return] = [(inf, 0, 0, 0)]
        self._next_return = 0
        self._free: list[tuple[float, int]] = []
        self._owner: list[Pod] = []
        self._until: list[float] = []
        self._run: list[int] = []
        self._queued: list[bool] = []
        self._running: list[float] = []
        self._leases: list[float] = []
        self._kills = sorted(load.kills)
        self._killed = 0
        for _ in range(load.first):
            pod = self.create()
            pod.created, pod.ready_at = -delay.typical, 0.0
            self._free = [(0.0, slot) for _, slot in self._free]

    # What is there

    @property
    def waiting(self) -> int:
        """Jobs that are due and not claimed."""
        arrived = bisect_right(self._due, self.now, self._next) - self._next
        return arrived + self._returned(self.now) - self._next_return

    @property
    def oldest_due(self) -> float:
        """When the job at the head became due; infinite when none waits."""
        return self.next_due if self.next_due <= self.now else inf

    @property
    def next_due(self) -> float:
        """When the next job is or was due."""
        return min(float(self._due[self._next]), self._returns[self._next_return][0])

    def waiting_due(self) -> list[float]:
        """When each waiting job became due, ascending."""
        arrived = self._due[self._next : bisect_right(self._due, self.now, self._next)]
        returned = [r[0] for r in self._returns[self._next_return : self._returned(self.now)]]
        return sorted(arrived + returned) if returned else arrived

    def due_between(self, after: float, until: float) -> int:
        """Jobs that became due later than `after` and no later than `until`."""
        arrived = bisect_right(self._due, until) - bisect_right(self._due, after)
        return arrived + self._returned(until) - self._returned(after)

    def retries_between(self, after: float, until: float) -> int:
        """Of those, the ones that had an attempt before."""
        return self._returned(until) - self._returned(after)

    def busy(self, pod: Pod) -> list[int]:
        """Return the attempts that a pod runs now."""
        return [self._run[slot] for slot in pod.slots if self._until[slot] > self.now]

    @property
    def in_flight(self) -> int:
        """Live leases, those of dead workers included until they expire."""
        held = sum(until > self.now for pod in self.alive for until in self._until[pod.slots.start : pod.slots.stop])
        return held + sum(expiry > self.now for expiry in self._leases)

    def _returned(self, moment: float) -> int:
        return bisect_right(self._returns, (moment, len(self._due), 0, 0))

    # What is done

    def create(self) -> Pod:
        """Start a pod; it takes jobs after its start delay."""
        number = len(self.pods)
        ready_at = self.now + self.delay.of(number)
        first = len(self._owner)
        pod = Pod(number, self.now, ready_at, range(first, first + self.load.slots))
        self.pods.append(pod)
        self.alive.append(pod)
        for slot in pod.slots:
            self._owner.append(pod)
            self._until.append(0.0)
            self._run.append(-1)
            self._queued.append(True)
            heappush(self._free, (ready_at, slot))
        return pod

    def close(self, pod: Pod) -> None:
        """Let a pod claim nothing any more."""
        pod.closed = True

    def reopen(self, pod: Pod) -> None:
        """Let a closed pod claim again."""
        pod.closed = False
        for slot in pod.slots:
            if not self._queued[slot]:
                self._queued[slot] = True
                heappush(self._free, (max(self._until[slot], pod.ready_at, self.now), slot))

    def end(self, pod: Pod, grace: float = inf) -> None:
        """Stop a pod: it finishes what it holds, for `grace` seconds; what is not done then starts anew elsewhere."""
        pod.closed = pod.ending = True
        last = self.now + grace
        pod.gone_at = self.now
        for slot in pod.slots:
            until = self._until[slot]
            if until > last:
                self._lose(slot, last, last)
                self.log.killed += 1
            pod.gone_at = max(pod.gone_at, min(until, last))
        self._bury()

    def kill(self, pod: Pod) -> None:
        """Let a pod die: its leases run out before others get its jobs; another pod is created in its place."""
        part = float(self.load.jitter[self._killed % len(self.load.jitter)])
        expiry = self.now + self.load.lease - 5.0 * part  # renewed every 5 s
        for slot in pod.slots:
            if self._until[slot] > self.now:
                self._lose(slot, self.now, expiry)
                self._leases.append(expiry)
        pod.closed = pod.ending = True
        pod.gone_at = self.now
        self._bury()
        self.create()

    def _lose(self, slot: int, moment: float, due: float) -> None:
        run = self._run[slot]
        if run in self.log.failed:
            self._returns = [r for r in self._returns if r[3] != run or r[0] == inf]
            self.log.failed.discard(run)
        self.log.lost.add(run)
        self.log.end[run] = moment
        self._until[slot] = moment
        insort(self._returns, (due, self.log.job[run], self.log.attempt[run] + 1, run), lo=self._next_return)

    def _bury(self) -> None:
        self.alive = [pod for pod in self.alive if pod.gone_at > self.now]
        self._leases = [expiry for expiry in self._leases if expiry > self.now]

    def advance(self, until: float) -> None:
        """Let time pass."""
        while self._killed < len(self._kills) and self._kills[self._killed] < until:
            moment = self._kills[self._killed]
            self._deal(moment)
            self.now = moment
            self._bury()
            ready = [pod for pod in self.alive if pod.ready_at <= moment and not pod.ending]
            if ready:
                part = float(self.load.jitter[(7 * self._killed + 3) % len(self.load.jitter)])
                self.kill(ready[int(part * len(ready)) % len(ready)])
            self._killed += 1
        self._deal(until)
        self.now = until
        self._bury()

    def _deal(self, until: float) -> None:
        """Start every attempt that starts before `until`."""
        free, due, service, failures = self._free, self._due, self._service, self._failures
        owner, busy_until, run_of, returns = self._owner, self._until, self._run, self._returns
        log, slowdown, running = self.log, self.load.slowdown, self._running
        dues, starts, ends, jobs, attempts = log.due, log.start, log.end, log.job, log.attempt
        following, coming = self._next, self._next_return
        while free:
            at, slot = free[0]
            if at >= until:
                break
            if owner[slot].closed:
                heappop(free)
                self._queued[slot] = False
                continue
            arrival = due[following]
            back = returns[coming]
            first = arrival if arrival <= back[0] else back[0]  # noqa: FURB136 - the hot loop; a call costs a fifth
            start = at if at > first else first  # noqa: FURB136
            if start >= until:
                break
            if arrival <= back[0]:
                job, attempt = following, 1
                following += 1
            else:
                job, attempt = back[1], back[2]
                coming += 1
            length = service[job]
            if slowdown is not None:
                while running and running[0] <= start:
                    heappop(running)
                length *= slowdown.factor(len(running) + 1)
                heappush(running, start + length)
            end = start + length
            if failures is not None and attempt <= failures[job]:
                log.failed.add(len(starts))
                insort(returns, (end + self.load.wait_before(attempt, job), job, attempt + 1, len(starts)), lo=coming)
            run_of[slot] = len(starts)
            busy_until[slot] = end
            dues.append(first)
            starts.append(start)
            ends.append(end)
            jobs.append(job)
            attempts.append(attempt)
            heapreplace(free, (end, slot))
        self._next, self._next_return = following, coming
