"""Carries plans out in a cluster: one Deployment a class, whose number of pods is ours alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobqueue_operator.planner.facts import Phase
from jobqueue_operator.planner.plan import BLIND, Reason
from jobqueue_operator.planner.workload import Rolling, rolling, scaled
from jobqueue_operator.platforms.kubernetes import pods, replicas
from jobqueue_operator.platforms.kubernetes.api import NOT_FOUND, PODS, ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jobqueue_operator.planner.facts import WorkerFacts
    from jobqueue_operator.planner.plan import Plan, Pool
    from jobqueue_operator.planner.workload import Made
    from jobqueue_operator.platforms.kubernetes.api import Api, Object
    from jobqueue_operator.platforms.kubernetes.applied import Applied
    from jobqueue_operator.platforms.kubernetes.informer import Informers
    from jobqueue_operator.platforms.kubernetes.pods import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What one class is made of, and where."""

    namespace: str
    class_: str
    name: str
    """Of its objects."""
    revision: str
    make: Callable[[], Made]
    """Makes its objects; they are not kept, as thousands of them would fill the operator's memory."""
    stamp: str
    """Stands for what they are made from."""
    network_policy: bool = False
    """Whether there is to be one."""
    put_back: bool = True
    """Whether what others change is undone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What all platforms of one operator share: how to ask, what is watched, what was applied."""

    api: Api
    deployments: Informers
    applied: Applied
    disruption_budgets: Applied
    network_policies: Applied

    @property
    def kinds(self) -> tuple[Applied, ...]:
        """What a class is made of, each kind of object."""
        return self.applied, self.disruption_budgets, self.network_policies


@dataclass(frozen=True, slots=True)
class _Told:
    """What a Deployment was told last."""

    stamp: str
    replicas: int
    rolling: Rolling


@dataclass(slots=True)
class KubernetesPlatform:
    """The classes of one database. `pods`: those of each class at this moment, `now` in seconds since the epoch."""

    cluster: Cluster
    targets: Mapping[str, Target]
    pods: Mapping[str, Sequence[Pod]]
    now: float
    errors: dict[str, str] = field(default_factory=dict)
    """By class: what the API server refused in this round."""
    put_back: list[str] = field(default_factory=list)
    """Classes whose Deployment somebody had changed."""

    async def observe(self) -> tuple[WorkerFacts, ...]:
        """Return every pod as a worker. One that runs is `Starting` here: only the queue knows that it is ready."""
        return tuple(pods.worker(pod, class_, self.now) for class_, each in self.pods.items() for pod in each)

    def told(self) -> dict[str, int]:
        """Return, by class, how many pods its Deployment is to have; those that are missing may come at any moment."""
        found = {
            name: self.cluster.deployments.get(target.namespace, target.name) for name, target in self.targets.items()
        }
        return {name: _replicas(deployment) for name, deployment in found.items() if deployment is not None}

    async def apply(self, plan: Plan, workers: Sequence[WorkerFacts] = ()) -> None:
        """Bring each Deployment a step nearer to its pool; a class that the API server refuses holds up no other."""
        retired = {w.name for w in workers if w.phase is Phase.RETIRED}
        for pool in plan.pools:
            target = self.targets.get(pool.class_)
            if target is None:
                continue
            try:
                await self._apply(pool, target, retired, [w for w in workers if w.class_ == pool.class_])
            except ApiError as error:
                self.errors[pool.class_] = str(error)

    async def _apply(self, pool: Pool, target: Target, retired: set[str], workers: Sequence[WorkerFacts]) -> None:
        existing = self.cluster.deployments.get(target.namespace, target.name)
        current = _replicas(existing)
        told = self.cluster.applied.changed(target.namespace, target.name)
        if isinstance(told, _Told) and told.replicas != current and target.put_back:
            self.put_back.append(pool.class_)
        if pool.decision.reason in BLIND:
            # Nothing is known: what runs stays as it is, whatever the manifest says by now. A fallback only adds.
            if existing is None or pool.decision.reason is not Reason.FALLBACK or pool.replicas <= current:
                return
            step = replicas.Step(pool.replicas)
            manner = Rolling.of(existing.get("spec") or {}, surge=pool.surge)
        else:
            step = replicas.step(
                self.pods.get(pool.class_, ()),
                current=current,
                wanted=pool.replicas,
                retired=retired,
                stop={victim.worker for victim in pool.stop},
                revision=target.revision,
            )
            manner = rolling(pool.kept, workers, target.revision, replicas=step.replicas, surge=pool.surge)
        await self._mark(target, step)
        where, keep = (target.namespace, target.name), target.put_back
        changed = await self.cluster.disruption_budgets.have(
            *where, target.stamp, lambda: target.make().disruption_budget, put_back=keep
        )
        if target.network_policy:
            changed |= await self.cluster.network_policies.have(
                *where, target.stamp, lambda: target.make().network_policy or {}, put_back=keep
            )
        changed |= await self.cluster.applied.have(
            *where,
            _Told(target.stamp, step.replicas, manner),
            lambda: scaled(target.make(), replicas=step.replicas, rolling=manner),
            put_back=keep,
        )
        if changed and pool.class_ not in self.put_back:
            self.put_back.append(pool.class_)

    async def _mark(self, target: Target, step: replicas.Step) -> None:
        for name, cost in step.costs.items():
            patch = {"metadata": {"annotations": {pods.DELETION_COST: None if cost is None else str(cost)}}}
            try:
                await self.cluster.api.merge(PODS, target.namespace, name, patch)
            except ApiError as error:
                if error.status != NOT_FOUND:  # it ended in the meantime
                    raise


def _replicas(deployment: Object | None) -> int:
    if deployment is None:
        return 0
    found = (deployment.get("spec") or {}).get("replicas")
    return found if isinstance(found, int) else 1
