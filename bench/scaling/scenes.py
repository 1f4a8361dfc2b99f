"""The campaigns: a burst from zero, a ramp, a downstream that slows down, a poison head, rollouts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench.reliability.verdict import Verdict
from bench.scaling.theatre import TICK, Theatre

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.scaling.theatre import Moment
    from services.postgres import Server

CAPACITY = """
apiVersion: jobqueue.dev/v1alpha1
kind: DownstreamCapacity
metadata: {{name: service}}
spec: {{units: {units}{more}}}
---
"""
QUEUE = """
apiVersion: jobqueue.dev/v1alpha1
kind: JobQueue
metadata: {{name: {name}}}
spec:
  app: jobs:app
  classes:
  - name: {name}
    concurrency: {slots}
    timeout: 20s
    target: {{oldestMessageAge: {target}s}}
    replicas: {{min: {least}, max: {most}, idleAfter: 5s}}
    lease: {{duration: 10s}}
    retry: {{maxAttempts: 5, backoff: {{initial: 100ms, max: 1s}}}}
    drain: {{timeout: {drain}}}
{capacity}
"""
ON_SERVICE = "    capacity: {ref: {name: service}, unitsPerJob: 1}"
FEW = 0.2
"""Share of the time for which the oldest may be above its target where the fleet can keep it."""


def _queue(
    name: str,
    *,
    slots: int = 4,
    target: int = 15,
    most: int = 6,
    least: int = 0,
    capacity: str = "",
    drain: str = "20s",
) -> str:
    return QUEUE.format(name=name, slots=slots, target=target, most=most, least=least, capacity=capacity, drain=drain)


def burst(seed: int, server: Server | None = None, *, jobs: int = 700) -> tuple[Verdict, Theatre]:
    """From zero to many and back to zero: all jobs at once, on a class with no worker."""
    verdict = Verdict("scaling-burst", seed)
    with Theatre(_queue("mail"), seed, server=server) as theatre:
        time.sleep(2 * TICK)
        theatre.enqueue("mail", jobs, seconds=0.2)
        theatre.until(lambda: theatre.ended() >= jobs, "the burst worked off")
        theatre.until(lambda: theatre.workers("mail") == 0, "back at zero")
    _common(verdict, theatre)
    _age(verdict, theatre.moments, "mail")
    verdict.happened("workers at once", _most(theatre.moments, "mail"), 3)
    verdict.zero("workers at the end", theatre.workers("mail"))
    return verdict, theatre


def ramp(seed: int, server: Server | None = None, *, seconds: float = 90) -> tuple[Verdict, Theatre]:
    """Follow a rate that rises, stays, and falls."""
    verdict = Verdict("scaling-ramp", seed)

    def rate(at: float) -> float:
        return 5 + 55 * max(min(at / (seconds / 3), (seconds - at) / (seconds / 3), 1.0), 0.0)

    with Theatre(_queue("mail"), seed, server=server) as theatre:
        theatre.trickle("mail", rate, seconds, seconds=0.2)
        theatre.until(lambda: theatre.ended() >= theatre.enqueued, "the ramp worked off")
        theatre.until(lambda: theatre.workers("mail") == 0, "back at zero")
    _common(verdict, theatre)
    _age(verdict, theatre.moments, "mail")
    verdict.happened("workers at once", _most(theatre.moments, "mail"), 3)
    return verdict, theatre


def slow(seed: int, server: Server | None = None, *, seconds: float = 75, knee: int = 8) -> tuple[Verdict, Theatre]:
    """Lean on a downstream that is full at its knee: more callers wait longer, and no more gets done."""
    verdict = Verdict("scaling-slow", seed)
    adaptive = ", adaptive: {enabled: true, minUnits: 4}"
    manifest = CAPACITY.format(units=24, more=adaptive) + _queue("mail", target=10, capacity=ON_SERVICE)
    with Theatre(manifest, seed, knee, server=server) as theatre:
        # A little at first, as a day begins; then more than the service can do.
        theatre.trickle("mail", lambda at: min(10 + 4 * at, 60), seconds, seconds=0.25)
        limits = [_units(m, "service")[1] for m in theatre.moments]
        theatre.connection.execute("DELETE FROM jobqueue.ready")  # what is left says nothing more
    _common(verdict, theatre, complete=False)
    verdict.at_most("lowest working limit, units", min(limits), 2 * knee)
    verdict.happened("lowest working limit above the least, units", min(limits), 4)
    late = [_units(m, "service")[0] for m in theatre.moments if m.at > 0.6 * seconds]
    verdict.at_most("units in flight late in the scene, mean", round(sum(late) / len(late), 1), 2 * knee)
    verdict.at_most("callers at once", theatre.service.peak, 24)
    saturated = sum("DownstreamSaturated" in str(m.classes) + str(m.downstreams) for m in theatre.moments)
    verdict.tell("ticks that name the condition", saturated)
    return verdict, theatre


def poison(seed: int, server: Server | None = None, *, seconds: float = 40) -> tuple[Verdict, Theatre]:
    """Jobs at the head that nobody can run, and one that kills its worker: neither brings more workers."""
    verdict = Verdict("scaling-poison", seed)
    with Theatre(_queue("mail", least=1), seed, server=server) as theatre:
        theatre.until(lambda: theatre.moments[-1].classes["mail"]["workers_ready"], "a worker", within=30)
        theatre.enqueue("mail", 500, kind="nobody")
        theatre.enqueue("mail", 1, kind="crash")
        theatre.trickle("mail", lambda _: 8, seconds, seconds=0.2)
        done = "SELECT count(*) FROM jobqueue.jobs WHERE kind = 'call' AND status = 'done'"
        theatre.until(lambda: theatre.value(done) >= theatre.enqueued - 501, "the good jobs done", within=60)
        dead = "SELECT attempts FROM jobqueue.jobs WHERE kind = 'crash' AND status = 'dead'"
        theatre.until(lambda: theatre.value(dead), "the crashing job dead", within=60)
        verdict.at_most("attempts of the crashing job", theatre.value(dead), 5)
        wait = (
            "SELECT max(extract(epoch FROM a.started_at - j.created_at)) FROM jobqueue.attempts a"
            " JOIN jobqueue.jobs j ON j.id = a.job_id WHERE j.kind = 'call' AND a.number = 1"
        )
        verdict.at_most("longest wait of a good job, seconds", round(float(theatre.value(wait)), 1), 15)
        waiting = theatre.value("SELECT count(*) FROM jobqueue.jobs WHERE kind = 'nobody' AND status = 'pending'")
        verdict.happened("jobs nobody understands, waiting", waiting, 500)
    verdict.at_most("workers at once", _most(theatre.moments, "mail"), 3)
    named = sum("HeadBlocked" in str(m.classes["mail"]) for m in theatre.moments)
    verdict.happened("ticks that name the blocked head", named)
    return verdict, theatre


def rollouts(seed: int, server: Server | None = None, *, times: int = 10, kills: int = 2) -> tuple[Verdict, Theatre]:
    """Rollouts, scale-in and kills under load, with two JobQueues on one capacity."""
    verdict = Verdict("scaling-rollouts", seed)
    units = 6
    manifest = CAPACITY.format(units=units, more="") + "---".join(
        _queue(name, slots=2, target=10, most=2, least=1, capacity=ON_SERVICE) for name in ("left", "right")
    )
    with Theatre(manifest, seed, server=server) as theatre:
        theatre.until(lambda: len(_ready(theatre)) == 2, "both classes ready", within=60)
        for number in range(times):
            theatre.write(manifest.replace("timeout: 20s\n", f"timeout: {20 + number + 1}s\n"))
            before = _said(theatre, "drained")
            theatre.roll()
            strong = ("left", "right")[number % 2]
            theatre.trickle(strong, lambda _: 30, 3.0, seconds=0.3)
            theatre.trickle(("left", "right")[1 - number % 2], lambda _: 5, 2.0, seconds=0.3)
            if number % max(times // max(kills, 1), 1) == 1 and theatre.kills < kills:
                theatre.kill_one()
            theatre.until(
                lambda before=before: _said(theatre, "drained") >= before + 2 and _settled(theatre),  # type: ignore[misc]
                f"rollout {number + 1} over",
                within=90,
            )
        theatre.until(lambda: theatre.ended() >= theatre.enqueued, "all worked off", within=180)
    _common(verdict, theatre)
    verdict.happened("rollouts", times, times)
    verdict.happened("workers replaced", _said(theatre, "drained"), 2 * times)
    verdict.happened("workers killed", theatre.kills, kills)
    verdict.happened("callers at once", theatre.service.peak, units - 1)
    verdict.at_most("callers at once, at most the limit", theatre.service.peak, units)
    over = sum(_units(m, "service")[0] > units for m in theatre.moments)
    verdict.zero("ticks with more units in flight than the limit", over)
    return verdict, theatre


SCENES = {"burst": burst, "ramp": ramp, "slow": slow, "poison": poison, "rollouts": rollouts}


def _common(verdict: Verdict, theatre: Theatre, *, complete: bool = True) -> None:
    """Add what holds in every scene: nothing lost, and nothing run twice but by a kill."""
    verdict.tell("jobs", theatre.enqueued)
    counts = theatre.counts
    if complete:
        verdict.zero("jobs that are not done", theatre.enqueued - counts["done"])
    verdict.at_most("jobs with more than one attempt", counts["again"], counts["lost"])
    verdict.at_most("attempts lost", counts["lost"], 8 * theatre.kills)
    verdict.tell("calls of the service", theatre.service.calls)


def _age(verdict: Verdict, moments: Sequence[Moment], name: str) -> None:
    rows = [m.classes[name] for m in moments if m.classes[name]["oldest_age"] is not None]
    verdict.tell("target, seconds", rows[0]["target_age"])
    verdict.tell("oldest age at most, seconds", round(max(row["oldest_age"] for row in rows), 1))
    above = sum(row["oldest_age"] > row["target_age"] for row in rows) / len(rows)
    verdict.at_most("share of the ticks above target", round(above, 3), FEW)


def _most(moments: Sequence[Moment], name: str) -> int:
    return max(int(m.classes[name]["workers"]) for m in moments)


def _units(moment: Moment, name: str) -> tuple[int, int]:
    row = moment.downstreams.get(name, {})
    return int(row.get("in_use") or 0), int(row.get("limit") or 0)


def _ready(theatre: Theatre) -> list[str]:
    return [name for name, row in theatre.moments[-1].classes.items() if row["workers_ready"]]


def _settled(theatre: Theatre) -> bool:
    rows = theatre.moments[-1].classes.values()
    return all(row["workers_ready"] >= 1 and not row["workers_draining"] for row in rows)


def _said(theatre: Theatre, word: str) -> int:
    return sum(line.endswith(word) for line in theatre.said)
