"""One runner's life under the supervisor: from its registration to what becomes of the leases it held."""

from __future__ import annotations

import asyncio
import enum
from typing import TYPE_CHECKING, Any

import psycopg
import structlog

from jobqueue import queue
from jobqueue.errors import QueueError, WorkerRefused
from jobqueue.worker import faults, pipe
from jobqueue.worker.beats import Beats
from jobqueue.worker.clock import now
from jobqueue.worker.killing import reap_orphans
from jobqueue.worker.leases import Leases
from jobqueue.worker.link import first_line
from jobqueue.worker.spawning import RunnerProcess
from jobqueue.worker.verdict import Watch

if TYPE_CHECKING:
    from jobqueue.queue import Registered
    from jobqueue.worker.supervisor import Supervisor

log = structlog.get_logger("jobqueue.worker")

LOOK = 0.1  # seconds between two looks at the board
REPORTED = 0.3  # seconds in which a runner's last counts arrive
LAST_REQUEST = 2**62  # above any claim's
LATE = 10.0  # seconds past its drain deadline that a runner gets to stop, flush and leave, then it is killed
NEIGHBOURS = 30.0  # seconds at most that others may go on beside a stuck handler
MEMORY_LOOK = 1.0
GOODBYE = 5.0  # seconds for the last words to the database when the worker ends
STUCK_PROGRESS = 30.0  # seconds beyond its class's timeout after which the oldest job means no progress


class Ending(enum.Enum):
    """How a runner's life ended."""

    LEFT = "left"  # drained, or replaced on purpose
    DIED = "died"
    MISCONFIGURED = "misconfigured"


class Incarnation:
    """One registered worker and its process."""

    def __init__(self, supervisor: Supervisor, registered: Registered) -> None:
        settings = supervisor.settings
        self._supervisor = supervisor
        self._settings = settings
        self._schema = settings.schema_name
        self.registered = registered
        self._worker = registered.worker
        self._timeout: float = registered.settings["timeout_seconds"]
        self._leases = Leases(registered.lease.total_seconds())
        self._watch = Watch(self._timeout)
        self._slots = settings.concurrency or registered.settings["concurrency"]
        self._runner: RunnerProcess | None = None
        self._beats: Beats | None = None
        self._state = "starting"
        self._paused = False
        self._drain_deadline: float | None = None
        self._recycling = False
        self._offenders: dict[int, str] = {}
        self._kill_reason: str | None = None
        self._replace_at: float | None = None
        self._left: set[int] | None = None
        self._fatal: str | None = None
        self._ready = False
        self._kinds: list[tuple[str, int]] = []
        self._ready_event = asyncio.Event()
        self.report: dict[str, Any] = {}

    # --- what others ask ---

    def ready(self) -> tuple[bool, str]:
        """Whether it takes jobs, and why not."""
        if not self._ready:
            return False, "importing the app"
        if self._state != "active":
            return False, self._state
        if self._replace_at is not None or self._recycling:
            return False, "replacing the runner"
        return True, "paused" if self._paused else "working"

    def progressing(self) -> bool:
        """Whether its loop turns and no job has outrun its time by far."""
        return not self._watch.frozen and self.report.get("oldest", 0.0) < self._timeout + STUCK_PROGRESS

    def drain(self, deadline: float) -> None:
        """Have the runner finish what runs until `deadline`, give back the rest, and leave."""
        self._drain_deadline = min(deadline, self._drain_deadline or deadline)
        if self._runner is not None:
            if self._ready:
                self._runner.pipe.send(type="drain", deadline=self._drain_deadline)
            else:
                self._kill_soon("drained before the app was imported")

    def _kill_soon(self, why: str) -> None:
        self._kill_reason = self._kill_reason or why

    # --- its life ---

    async def run(self) -> Ending:
        """Spawn the runner, see it through, and settle its leases."""
        start = {
            "orders": self._supervisor.orders.to_wire(),
            "worker": self._worker,
            "lease": self._leases.duration,
            "class": self.registered.settings,
        }
        self._supervisor.metrics.gauges.slots = self._slots
        self._runner = runner = await RunnerProcess.spawn(self._slots, start)
        log.info("runner started", worker=self._worker, pid=runner.process.pid, slots=self._slots)
        listening = asyncio.create_task(self._listen(runner))
        beating = asyncio.create_task(self._beat_when_ready())
        watching = asyncio.create_task(self._look(runner))
        exited = asyncio.create_task(runner.process.wait())
        try:
            done, _ = await asyncio.wait({watching, exited, beating, listening}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {exited}:
                task.result()  # a fault of ours is not hidden
            if listening in done:
                await asyncio.wait({exited}, timeout=1.0)  # it closed its end: it is about to exit
        finally:
            await runner.kill()
            await asyncio.wait({listening}, timeout=1.0)  # what it said last is still in the pipe
            for task in (listening, beating, watching, exited):
                task.cancel()
            await asyncio.wait({listening, beating, watching, exited})
            self._supervisor.metrics.gauges.running = self._supervisor.metrics.gauges.stuck = 0
        ending = await self._settle(runner)
        runner.close()
        return ending

    async def _listen(self, runner: RunnerProcess) -> None:
        while (frame := await runner.pipe.receive()) is not None:
            kind, message = frame
            if kind == pipe.HOLD:
                self._leases.hold(message)
            elif kind == pipe.DROP:
                self._leases.drop(message)
            else:
                getattr(self, f"_on_{message.pop('type')}")(**message)

    def _on_ready(self, *, kinds: list[tuple[str, int]]) -> None:
        self._kinds = [(kind, version) for kind, version in kinds]
        self._supervisor.metrics.know(sorted({kind for kind, _ in self._kinds}))
        self._ready_event.set()

    def _on_fatal(self, *, error: str) -> None:
        self._fatal = error

    def _on_counts(self, *, counts: dict[str, Any], **report: Any) -> None:
        self.report = report
        metrics = self._supervisor.metrics
        metrics.add(counts)
        metrics.gauges.running, metrics.gauges.stuck = report["running"], report["stuck"]

    def _on_refused(self) -> None:
        if self._beats is not None:
            self._beats.hurry()

    def _on_cancel_hint(self, *, id: int) -> None:  # noqa: A002 - the message's word
        del id  # anyone can forge it: the heartbeat says what is so
        if self._beats is not None:
            self._beats.hurry()

    def _on_stuck(self, *, token: int, why: str, timeout: float) -> None:
        if why == "timeout":
            self._offenders[token] = faults.timed_out(timeout, "; it could not be stopped, so its process was").error
        at = now() + (REPORTED if why == "lost" else min(NEIGHBOURS, self._timeout))
        self._replace_at = min(at, self._replace_at or at)

    def _on_drained(self, *, left: list[int]) -> None:
        self._left = set(left)

    # --- heartbeats ---

    async def _beat_when_ready(self) -> None:
        await self._ready_event.wait()
        try:
            await self._supervisor.membership.understand(self._worker, self._kinds)
        except WorkerRefused as error:
            self._kill_soon(first_line(error))
            await asyncio.Event().wait()  # the look at the board ends it
        if self._runner is None:
            return
        self._beats = Beats(
            self._supervisor.link,
            self._leases,
            self._runner.pipe,
            self._worker,
            self._schema,
            self._on_state,
            heartbeat=self._settings.heartbeat,
        )
        self._ready = True
        if self._drain_deadline is not None:
            self.drain(self._drain_deadline)
        await self._beats.run()

    def _on_state(self, state: str, paused: bool) -> bool:  # noqa: FBT001 - a callback's fact
        if state != self._state:
            log.info("worker state", worker=self._worker, state=state, before=self._state)
            self._state = state
        self._paused = paused
        if state == "unknown":
            self._kill_soon("the queue does not know this worker any more")
        return state == "active" and not paused and self._drain_deadline is None and self._replace_at is None

    # --- watching ---

    async def _look(self, runner: RunnerProcess) -> None:
        """Return when the runner must be killed."""
        memory_at = 0.0
        while True:
            await asyncio.sleep(LOOK)
            moment = now()
            verdict = self._watch.look(runner.board.glance(), moment, self._leases.end)
            if verdict is not None:
                for token in verdict.offenders:
                    self._offenders.setdefault(token, f"TimeoutError: {verdict.why}; its process was killed")
                self._kill_soon(verdict.why)
            if self._replace_at is not None and (
                moment > self._replace_at or (self._offenders and self._only_stuck_left())
            ):
                self._kill_soon("a handler could not be stopped")
            if self._drain_deadline is not None and moment > self._drain_deadline + LATE:
                self._kill_soon("it did not leave by its drain deadline")
            if self._kill_reason is not None:
                log.warning("killing the runner", worker=self._worker, why=self._kill_reason)
                return
            if moment > memory_at:
                memory_at = moment + MEMORY_LOOK
                reap_orphans({runner.process.pid})
                self._recycle_when_due(runner)

    def _only_stuck_left(self) -> bool:
        return all(token in self._offenders for _, token in self._leases.pairs())

    def _recycle_when_due(self, runner: RunnerProcess) -> None:
        if self._recycling or self._drain_deadline is not None or not self._ready:
            return
        settings = self._settings
        ended = self.report.get("ended", 0)
        why = None
        if settings.max_jobs is not None and ended >= settings.max_jobs:
            why = f"it has run {ended} jobs"
        elif settings.max_memory is not None and runner.memory() > settings.max_memory * 1024 * 1024:
            why = f"it holds more than {settings.max_memory} MiB"
        if why is not None:
            log.info("replacing the runner", worker=self._worker, why=why)
            self._recycling = True
            self.drain(now() + self._timeout)

    # --- its end ---

    async def _settle(self, runner: RunnerProcess) -> Ending:
        if self._fatal is not None:
            log.critical("cannot start", error=self._fatal)
            await self._goodbye(self._supervisor.membership.forget(self._worker))
            return Ending.MISCONFIGURED
        on_purpose = self._kill_reason is not None or self._left is not None
        await self._goodbye(
            self._tell_ends(runner.board.finished_tokens(), runner.board.started_tokens(), on_purpose=on_purpose)
        )
        if on_purpose:
            log.info("runner ended", worker=self._worker, why=self._kill_reason or "drained")
            return Ending.LEFT
        log.error("runner died", worker=self._worker, how=runner.how(), held=len(self._leases))
        return Ending.DIED

    async def _tell_ends(self, finished: set[int], started: set[int], *, on_purpose: bool) -> None:
        """Settle every lease, then end the registration.

        What finished is acknowledged, offenders fail, what had not started is given back. What was running is given
        back when we ended the runner, and lost (attempt spent, suspect) when it died by itself: any may be to blame.
        """
        metrics = self._supervisor.metrics
        done = self._leases.pairs(finished)
        if done:
            rows = await self._call(queue.complete_many, *_columns(done))
            metrics.acked("done", sum(row.result == "done" for row in rows))
        if on_purpose:
            failed = self._leases.pairs(self._offenders.keys() - finished)
            if failed:
                errors = [self._offenders[token] for _, token in failed]
                nothing = [None] * len(failed)
                rows = await self._call(
                    queue.fail_many,
                    *_columns(failed),
                    errors,
                    ["retry"] * len(failed),
                    nothing,
                    ["timeout"] * len(failed),
                )
                metrics.acked("retry", sum(row.result == "retry" for row in rows))
                for job, token in failed:
                    log.warning("failed", job_id=job, outcome="retry", error=self._offenders[token])
        ended = finished | self._offenders.keys() if on_purpose else finished | started
        rest = [pair for pair in self._leases.pairs() if pair[1] not in ended]
        if rest:
            reason = "drain" if self._supervisor.draining.is_set() else "replaced"
            rows = await self._call(queue.release_many, *_columns(rest), reason=reason)
            stale = sum(row.result == "stale" for row in rows)
            metrics.released(reason, len(rows) - stale)
            metrics.lost(stale)
        # A claim may have been carried out whose answer nobody heard: given back too.
        known = [token for _, token in self._leases.pairs() if token in started]
        unheard = await self._give_back_unheard([] if on_purpose else known)
        metrics.released("reconnected", unheard)
        lost = await self._supervisor.membership.forget(self._worker)
        if lost:
            metrics.lost(lost)

    async def _give_back_unheard(self, known: list[int]) -> int:
        try:
            return await self._supervisor.link.call_again(
                queue.recover, self._worker, LAST_REQUEST, known, schema=self._schema
            )
        except WorkerRefused:
            return 0  # somebody else ended the registration

    async def _call(self, verb: Any, *args: Any, **named: Any) -> list[Any]:
        try:
            rows: list[Any] = await self._supervisor.link.call_again(verb, *args, schema=self._schema, **named)
        except (QueueError, psycopg.Error) as error:
            log.error("settling leases refused", error=first_line(error))  # noqa: TRY400 - one line
            return []
        return rows

    async def _goodbye(self, work: Any) -> None:
        """Tell the database; when the worker ends, not for longer than GOODBYE: leases expire by themselves."""
        telling = asyncio.ensure_future(work)
        draining = asyncio.create_task(self._supervisor.draining.wait())
        await asyncio.wait({telling, draining}, return_when=asyncio.FIRST_COMPLETED)
        draining.cancel()
        await asyncio.wait({telling}, timeout=GOODBYE)
        telling.cancel()
        await asyncio.wait({telling})
        if not telling.cancelled():
            telling.result()


def _columns(pairs: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [job for job, _ in pairs], [token for _, token in pairs]
