"""From the facts of each JobQueue to those of all, and from the plan for all to each one's part. Pure.

A database knows a class by its name, a plan by its key: namespace/jobqueue/class.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jobqueue_operator.planner.facts import DownstreamFacts, Facts
from jobqueue_operator.planner.plan import Plan, Pool
from jobqueue_operator.planner.wanted import Wanted
from jobqueue_operator.queues.queue import HERE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jobqueue_operator.cluster.store import Key


def pool_key(queue: Key, class_: str) -> str:
    """Return a class's key in a plan."""
    return f"{queue[0]}/{queue[1]}/{class_}"


def together(parts: Mapping[Key, tuple[str, Facts]], classes: Mapping[Key, Iterable[str]]) -> Facts:
    """Bring the facts of JobQueues together: `parts` by JobQueue, each with the name of its database.

    Classes of a database that are not the JobQueue's are left out. A downstream is counted once a database.
    """
    found = Facts(
        classes={
            pool_key(key, name): facts.classes[name]
            for key, (_, facts) in parts.items()
            for name in classes[key]
            if name in facts.classes
        },
        workers=tuple(
            replace(worker, class_=pool_key(key, worker.class_))
            for key, (_, facts) in parts.items()
            for worker in facts.workers
        ),
        told={
            pool_key(key, name): facts.told[name]
            for key, (_, facts) in parts.items()
            for name in classes[key]
            if name in facts.told
        },
        connections={
            database: facts.connections[HERE] for database, facts in parts.values() if HERE in facts.connections
        },
    )
    downstreams: dict[str, dict[str, DownstreamFacts]] = {}
    for database, facts in parts.values():
        for name, seen in facts.downstreams.items():
            for each in seen:
                downstreams.setdefault(name, {})[database] = replace(each, database=database)
    return replace(found, downstreams={name: tuple(by.values()) for name, by in downstreams.items()})


def by_queue(plan: Plan) -> dict[Key, Plan]:
    """Return each JobQueue's pools, and all downstreams: what `part` of that JobQueue needs of a plan."""
    pools: dict[Key, list[Pool]] = {}
    for pool in plan.pools:
        pools.setdefault(_queue(pool.class_), []).append(pool)
    return {key: Plan(tuple(each), plan.downstreams) for key, each in pools.items()}


def part(plan: Plan, queue: Key, database: str) -> Plan:
    """Return one JobQueue's part of a plan, in the words of its database."""
    prefix = pool_key(queue, "")
    return Plan(
        tuple(replace(p, class_=p.class_.removeprefix(prefix)) for p in plan.pools if p.class_.startswith(prefix)),
        tuple(replace(a, limits={HERE: a.limits[database]} if database in a.limits else {}) for a in plan.downstreams),
    )


def renamed(pool: Pool, key: str) -> Pool:
    """Return a pool under another key."""
    return replace(pool, class_=key)


def local(wanted: Wanted, plan: Plan, queues: Iterable[Key]) -> tuple[Wanted, Plan]:
    """Return what concerns one database, classes by their names. `queues`: the JobQueues that share it."""
    those = set(queues)

    def name(key: str) -> str:
        return key.rpartition("/")[2]

    return (
        Wanted(pools=tuple(replace(p, key=name(p.key)) for p in wanted.pools if _queue(p.key) in those)),
        Plan(tuple(renamed(p, name(p.class_)) for p in plan.pools if _queue(p.class_) in those)),
    )


def _queue(key: str) -> Key:
    """Return the JobQueue of a class's key."""
    namespace, queue, _ = key.split("/")
    return namespace, queue
