"""What a class asks for, before its downstream is looked at: the law, then the bounds of its manifest, one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jobqueue_operator.planner import demand, estimate, sanity, schedule, window
from jobqueue_operator.planner.facts import Phase
from jobqueue_operator.planner.memory import ClassMemory, Past
from jobqueue_operator.planner.plan import Bound, Condition, Reason, Remark
from jobqueue_operator.resources.durations import render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobqueue_operator.planner.facts import ClassFacts, Facts, WorkerFacts
    from jobqueue_operator.planner.plan import Pool, Terms
    from jobqueue_operator.planner.wanted import PoolSpec
    from jobqueue_operator.resources.job_class import Replicas, ScheduledMinimum

STUCK_LEAST = 15.0
"""Seconds for which slots must be idle, while jobs that could run grow older, before more workers are given up."""
STUCK_TICKS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One class's wish."""

    replicas: int
    """Workers that are wanted; already held to replicas.max."""
    minimum: int = 0
    """Workers that must run whatever the demand: replicas.min, or a schedule's."""
    slots: int = 1
    charge: int = 0
    """Units that one worker is charged: unitsPerPod + unitsPerJob * slots; 0 without a downstream."""
    exist: int = 0
    """Workers not known to be dead, whatever their phase, and those about to be made: each is charged."""
    leaving: int = 0
    """Those of them that are being stopped."""
    lateness: float = 0.0
    """Oldest message age over target."""
    blind: bool = False
    """The class could not be seen, or its facts were refused: it keeps what it has."""
    reason: Reason
    message: str
    terms: Terms | None = None
    bounds: tuple[Bound, ...] = ()
    remarks: tuple[Remark, ...] = ()
    memory: ClassMemory


def ask(
    wanted: PoolSpec, facts: Facts, workers: Sequence[WorkerFacts], previous: Pool | None, *, now: float, tick: float
) -> Ask:
    """Return what one class asks for, and why. `workers`: its own."""
    spec = wanted.spec
    memory = previous.memory if previous is not None else ClassMemory()
    leaving = sum(1 for w in workers if w.phase is Phase.DRAINING)
    exist = max(len(workers), leaving + facts.told.get(wanted.key, 0))
    stay = sum(1 for w in workers if w.phase not in {Phase.RETIRED, Phase.DRAINING})
    decided = previous.decision if previous is not None and previous.decision.reason is not Reason.RESTORED else None
    current = decided.replicas if decided is not None else stay
    capacity = spec.capacity
    planned = schedule.highest(spec.schedule, now)
    least = max(spec.replicas.min, planned.min if planned is not None else 0)
    charge = capacity.charge(spec.concurrency) if capacity is not None else 0
    seen = facts.classes.get(wanted.key) if facts.visible else None
    problem = sanity.complaint(seen) if seen is not None else None
    if seen is None or problem is not None:
        known = f"its facts cannot be true ({problem})" if problem is not None else "the queue cannot be read"
        since = memory.blind_since if memory.blind_since is not None and memory.blind_since <= now else now
        held = max(current, least)
        number, reason, message = _blind(spec.replicas, held, now - since)
        return Ask(
            replicas=number,
            minimum=least,
            slots=spec.concurrency,
            charge=charge,
            exist=exist,
            leaving=leaving,
            blind=True,
            reason=reason or (Reason.FACTS_REFUSED if problem is not None else Reason.NOT_VISIBLE),
            message=f"{known}: {message}",
            remarks=(Remark(Condition.METRICS_UNAVAILABLE, f"class {spec.name}: {known}"),),
            memory=replace(memory, blind_since=since),
        )
    memory = replace(memory, blind_since=None)
    target = spec.target.oldest_message_age.total_seconds()
    wish = Ask(
        replicas=0,
        minimum=least,
        slots=spec.concurrency,
        charge=charge,
        exist=exist,
        leaving=leaving,
        lateness=seen.oldest_age / target,
        reason=Reason.IDLE,
        message="",
        memory=memory,
    )
    if spec.paused or seen.paused:
        # Pausing stops claims in the queue. The minimum stays, so that resuming needs no start.
        return replace(
            wish,
            replicas=least,
            reason=Reason.PAUSED,
            message=f"paused: no claims, {least} kept",
        )
    terms, waiting = demand.terms(seen, workers, memory, target=target, stated_slots=spec.concurrency, tick=tick)
    remembered = _remember(memory, seen, workers, terms, waiting, current=stay, now=now, tick=tick, spec=wanted)
    wish = replace(wish, terms=terms, memory=remembered)
    return _bounded(wish, wanted, planned, seen, workers, waiting, current, now, tick)


def _blind(replicas: Replicas, held: int, seconds: float) -> tuple[int, Reason | None, str]:
    """Return how many workers there are while nothing is seen, the reason if it is the fallback, and why."""
    fallback = replicas.fallback
    if fallback is None or held >= fallback.replicas:
        return held, None, f"holding {held}"
    if seconds < fallback.after.total_seconds():
        return (
            held,
            None,
            f"holding {held}; replicas.fallback asks for {fallback.replicas} after {render(fallback.after)}",
        )
    return fallback.replicas, Reason.FALLBACK, f"for {seconds:.0f}s: replicas.fallback, {fallback.replicas}"


def _remember(
    memory: ClassMemory,
    seen: ClassFacts,
    workers: Sequence[WorkerFacts],
    terms: Terms,
    waiting: demand.Backlog,
    *,
    current: int,
    now: float,
    tick: float,
    spec: PoolSpec,
) -> ClassMemory:
    manner = window.MANNERS[spec.spec.replicas.behavior]
    length, since = window.current(memory, now, start_delay=terms.start_delay, manner=manner)
    past = memory.past
    if not past and current:
        # Whoever left these workers had its reasons: they are kept for as long as if it had been us.
        past = (Past(now, current, current),)
        memory = replace(memory, past=past)
    brief = window.brief(terms.start_delay, tick, length)
    peak = max(terms.up, terms.need)
    busy = seen.ready + seen.in_flight + seen.expired + estimate.due_within(seen, terms.start_delay) > 0
    busy_at = now if busy else memory.busy_at
    if busy_at is not None and busy_at > now:
        busy_at = now
    # One that has just come up has not had the time to claim.
    settled = [w for w in workers if w.started_in is None or w.age - w.started_in > tick]
    idle_slots = _idle_slots(seen, settled, terms)
    rising = waiting.workable > 0 and seen.oldest_age > memory.oldest_age and idle_slots >= terms.slots
    return replace(
        memory,
        busy_at=busy_at,
        service=terms.service,
        prior=estimate.prior(seen.attempts, memory, terms.service, tick=tick),
        delays=estimate.delays(workers, memory),
        start_delay=terms.start_delay,
        past=window.remember(memory, now, terms.lasting, peak, longest=max(length, brief)),
        window=length,
        window_at=since,
        stuck=memory.stuck + tick if rising else 0.0,
        oldest_age=seen.oldest_age,
    )


def _idle_slots(seen: ClassFacts, workers: Sequence[WorkerFacts], terms: Terms) -> int:
    slots = sum(estimate.slots(w, terms.slots) for w in workers if w.phase is Phase.READY)
    return slots - seen.in_flight


def _bounded(
    wish: Ask,
    wanted: PoolSpec,
    planned: ScheduledMinimum | None,
    seen: ClassFacts,
    workers: Sequence[WorkerFacts],
    waiting: demand.Backlog,
    current: int,
    now: float,
    tick: float,
) -> Ask:
    """Apply what bounds the law's number, in order; each that changes it is kept."""
    spec, terms, memory = wanted.spec, wish.terms, wish.memory
    assert terms is not None  # noqa: S101 - for the type checker
    number = max(terms.up, terms.need)
    reason = Reason.IDLE if number == 0 else Reason.CATCHING_UP if terms.up > terms.need else Reason.DEMAND
    message = _say(number, seen, terms)
    bounds: list[Bound] = []

    def bound(to: int, why: Reason, text: str) -> None:
        nonlocal number, reason, message
        if to != number:
            number, reason, message = to, why, text
            bounds.append(Bound(reason=why, replicas=to, message=text))

    keep = window.keep(
        memory.past,
        now,
        window=memory.window or 0.0,
        brief_window=window.brief(terms.start_delay, tick, memory.window or 0.0),
    )
    idle_for = now - memory.busy_at if memory.busy_at is not None else None
    idle_after = spec.replicas.idle_after.total_seconds()
    # Idle for as long as the manifest asks for, a class goes to zero whatever the windows remember.
    at_rest = number == 0 and idle_for is not None and idle_for >= idle_after
    if number < min(current, keep) and not at_rest:
        kept = min(current, keep)
        bound(
            kept, Reason.SCALE_IN_WINDOW, f"{number} would do; {kept} stay until that has held for {memory.window:.0f}s"
        )
    live = sum(1 for w in workers if w.phase in {Phase.READY, Phase.STARTING})
    if memory.stuck >= max(STUCK_LEAST, STUCK_TICKS * tick) and number > max(live, 1):
        bound(
            max(live, 1),
            Reason.HEAD_BLOCKED,
            f"slots are idle while {waiting.workable:.0f} ready jobs grow older: no more workers",
        )
    if number == 0 and current > 0 and idle_for is not None and idle_for < idle_after:
        bound(1, Reason.IDLE_AFTER, f"idle for {idle_for:.0f}s of {idle_after:.0f}s")
    if planned is not None and planned.min > max(number, spec.replicas.min):
        text = f"schedule {planned.cron!r} for {render(planned.for_)} asks for {planned.min}; the demand is {number}"
        bound(planned.min, Reason.SCHEDULED_MINIMUM, text)
    elif number < spec.replicas.min:
        bound(spec.replicas.min, Reason.MINIMUM_REPLICAS, f"replicas.min {spec.replicas.min}; the demand is {number}")
    if spec.replicas.pin is not None:
        bound(spec.replicas.pin, Reason.PINNED, f"pinned to {spec.replicas.pin}; the demand is {number}")
    elif number > spec.replicas.max:
        bound(
            spec.replicas.max,
            Reason.MAXIMUM_REPLICAS,
            f"replicas.max {spec.replicas.max}; the demand is {number}: {_say(number, seen, terms)}",
        )
    return replace(
        wish,
        replicas=number,
        reason=reason,
        message=message,
        terms=replace(terms, keep=keep, window=memory.window or 0.0),
        bounds=tuple(bounds),
        remarks=_remarks(wanted, seen, workers, waiting, terms, tick),
    )


def _say(number: int, seen: ClassFacts, terms: Terms) -> str:
    if number == 0:
        return "no jobs"
    about = "~" if seen.estimated else ""
    text = (
        f"{about}{seen.ready} ready, oldest {seen.oldest_age:.0f}s of {terms.target:.0f}s, {seen.in_flight} in flight, "
        f"{terms.rate:.1f}/s x {terms.service:.2g}s"
    )
    more = number - terms.need
    return f"{text}; {more} more to catch up" if terms.up > terms.need else text


def _remarks(
    wanted: PoolSpec,
    seen: ClassFacts,
    workers: Sequence[WorkerFacts],
    waiting: demand.Backlog,
    terms: Terms,
    tick: float,
) -> tuple[Remark, ...]:
    found = []
    name = wanted.spec.name
    late = terms.start_delay + 2.0 * tick
    if late > terms.deadline:
        found.append(
            Remark(
                Condition.TARGET_BELOW_START_DELAY,
                f"class {name}: a worker is up {late:.0f}s after it is needed (start {terms.start_delay:.0f}s and "
                f"two ticks of {tick:g}s), too late for target {terms.target:.0f}s; keep workers by replicas.min or "
                "schedule, raise the target, or start faster",
            )
        )
    blocked = seen.ready - waiting.workable
    if blocked > 0 and _idle_slots(seen, workers, terms) > 0:
        causes = {
            "unsupported by any worker": seen.unsupported,
            "behind a concurrency key in use": seen.blocked_key,
            "of a tenant at its limit": seen.blocked_tenant,
        }
        which = ", ".join(f"{count} {cause}" for cause, count in causes.items() if count) or f"{blocked:.0f}"
        found.append(
            Remark(
                Condition.HEAD_BLOCKED,
                f"class {name}: of {seen.ready} ready jobs, more workers cannot help: {which}",
            )
        )
    return tuple(found)
