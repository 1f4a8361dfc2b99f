"""One JobQueue's objects: brought a step nearer to the plan, level-triggered, as often as it is called."""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from jobqueue_operator import observe
from jobqueue_operator.cluster import views
from jobqueue_operator.planner import draining, workload
from jobqueue_operator.planner.status import Condition
from jobqueue_operator.planner.workload.names import CLASS_LABEL, QUEUE_LABEL, account_name
from jobqueue_operator.platforms.kubernetes import KubernetesPlatform, Target
from jobqueue_operator.platforms.kubernetes.api import DEPLOYMENTS
from jobqueue_operator.queues.carry_out import Executor
from jobqueue_operator.queues.gather import LeadershipLost, Sight

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobqueue.signals import Snapshot
    from jobqueue_operator.cluster.store import Key
    from jobqueue_operator.cluster.work import Work
    from jobqueue_operator.planner.plan import Plan
    from jobqueue_operator.planner.workload import Made
    from jobqueue_operator.platforms.kubernetes.api import Object
    from jobqueue_operator.platforms.kubernetes.applied import Applied
    from jobqueue_operator.platforms.kubernetes.informer import Informers
    from jobqueue_operator.platforms.kubernetes.platform import Cluster
    from jobqueue_operator.queues.saying import Level
    from jobqueue_operator.resources import ClassSpec, JobQueue

log = logging.getLogger(__name__)


class _Log:
    """Where an executor's lines go."""

    def say(self, level: Level, message: str, **details: object) -> None:
        """Write a line."""
        log.log(logging.getLevelName(level.upper()), message, extra=details)


@dataclass(slots=True)
class Reconciler:
    """Remembers the revisions of each JobQueue's classes, so that they are worked out once a change."""

    cluster: Cluster
    pods: Informers
    autoscalers: Informers
    accounts: Applied
    network_policy: bool
    owned: Mapping[str, Sequence[tuple[Applied, Object]]] = field(default_factory=dict)
    """The objects of each JobQueue's classes by its uid, each with its kind, as of the last `begin`."""
    _revisions: dict[Key, tuple[str, dict[str, str]]] = field(default_factory=dict)

    def begin(self) -> None:
        """Look at all objects once a round."""
        found: defaultdict[str, list[tuple[Applied, Object]]] = defaultdict(list)
        for kind in self.cluster.kinds:
            for thing in kind.seen():
                for owner in thing["metadata"].get("ownerReferences") or ():
                    found[owner.get("uid", "")].append((kind, thing))
        self.owned = found

    def pods_by_queue(self) -> Mapping[Key, Mapping[str, Sequence[Object]]]:
        """Return the pods of each JobQueue, by class."""
        found: defaultdict[Key, defaultdict[str, list[Object]]] = defaultdict(lambda: defaultdict(list))
        for pod in self.pods.all():
            labels = pod["metadata"].get("labels") or {}
            key = pod["metadata"]["namespace"], labels.get(QUEUE_LABEL, "")
            found[key][labels.get(CLASS_LABEL, "")].append(pod)
        return found

    def revision(self, work: Work, spec: ClassSpec) -> str:
        """Return what a class's workers should be made from. Raises ValueError when they cannot be made."""
        assert work.queue is not None  # noqa: S101 - only what is carried out is made
        stamp = self._stamp(work)
        known = self._revisions.get(work.key)
        if known is None or known[0] != stamp:
            made = {each.name: self._make(work, each).revision for each in work.queue.spec.classes}
            known = self._revisions[work.key] = stamp, made
        return known[1][spec.name]

    def _make(self, work: Work, spec: ClassSpec) -> Made:
        assert work.queue is not None  # noqa: S101 - as above
        return workload.objects(
            work.queue,
            spec,
            owner_uid=work.known.uid,
            restarted_at=work.known.restarts.get(spec.name),
            network_policy=self.network_policy,
        )

    async def look(self, work: Work) -> Sight:
        """Return what is known of one JobQueue, in the words of its database."""
        assert work.queue is not None  # noqa: S101 - as above
        targets = {
            spec.name: Target(
                namespace=work.key[0],
                class_=spec.name,
                name=workload.object_name(work.key[1], spec.name),
                revision=self.revision(work, spec),
                make=partial(self._make, work, spec),
                stamp=self._stamp(work),
                network_policy=self.network_policy,
                put_back=not spec.paused,
            )
            for spec in work.queue.spec.classes
            if self._is_ours(work, spec)
        }
        work.platform = KubernetesPlatform(self.cluster, targets, work.pods, work.now)
        workers = await work.platform.observe()
        if work.link is None or work.link.snapshot is None:
            return Sight(replace(observe.facts(None, workers), told=work.platform.told()), None)
        snapshot = work.link.snapshot
        removed = work.pods.keys() - {spec.name for spec in work.queue.spec.classes}
        facts = observe.part(work.link.facts, snapshot, {*targets, *removed}, workers)
        return Sight(replace(facts, told=work.platform.told()), snapshot)

    async def reconcile(self, work: Work, plan: Plan) -> None:
        """Bring one JobQueue's objects a step nearer to the plan. Raises JobQueueError and ApiError."""
        if work.queue is None or work.sight is None or work.platform is None:
            return
        work.plan = views.part(plan, work.key, work.database_name)
        work.facts = work.sight.facts
        work.conditions += _of_manifest(work)
        self._name_rivals(work)
        if work.link is None:
            return
        if work.sight.snapshot is not None:
            await self._have_account(work, work.queue)
        executor = Executor(work.link.database, work.platform, _Log())
        try:
            work.facts = await executor.carry_out(work.plan, work.sight)
        except LeadershipLost as error:
            work.link.lose(str(error))
            return
        if work.sight.snapshot is not None:
            await self._end_removed(work, work.sight.snapshot)

    async def _have_account(self, work: Work, queue: JobQueue) -> None:
        work.account_put_back = await self.accounts.have(
            work.key[0],
            account_name(work.key[1]),
            work.known.uid,
            lambda: workload.service_account(queue, owner_uid=work.known.uid),
            put_back=not all(spec.paused for spec in queue.spec.classes),
        )

    def _stamp(self, work: Work) -> str:
        return f"{work.known.uid} {work.generation} {sorted(work.known.restarts.items())}"

    def _is_ours(self, work: Work, spec: ClassSpec) -> bool:
        """Whether a class's Deployment is this JobQueue's, or not there yet; if not, say whose."""
        name = workload.object_name(work.key[1], spec.name)
        existing = self.cluster.deployments.get(work.key[0], name)
        owners = (existing or {"metadata": {}})["metadata"].get("ownerReferences") or []
        if existing is None or any(owner.get("uid") == work.known.uid for owner in owners):
            return True
        whose = ", ".join(f"{o.get('kind')} {o.get('name')}" for o in owners) or "nobody"
        message = f"class {spec.name}: Deployment {name} belongs to {whose} and is not touched; rename the class"
        work.conditions.append(Condition("Conflicting", "True", "DeploymentTaken", message))
        return False

    def _name_rivals(self, work: Work) -> None:
        names = {target.name for target in work.platform.targets.values()} if work.platform is not None else set()
        for scaler in self.autoscalers.all():
            aim = (scaler.get("spec") or {}).get("scaleTargetRef") or {}
            if scaler["metadata"]["namespace"] != work.key[0] or aim.get("name") not in names:
                continue
            if aim.get("kind") == "Deployment":
                message = (
                    f"HorizontalPodAutoscaler {scaler['metadata']['name']} is aimed at Deployment {aim['name']}, whose "
                    "replicas are the operator's; delete it"
                )
                work.conditions.append(Condition("Conflicting", "True", "HorizontalPodAutoscaler", message))

    async def _end_removed(self, work: Work, snapshot: Snapshot) -> None:
        """Let classes that are no longer in the manifest work off their jobs, then take them away."""
        assert work.queue is not None  # noqa: S101 - as above
        removed: defaultdict[str, list[tuple[Applied, Object]]] = defaultdict(list)
        for kind, thing in self.owned.get(work.known.uid, ()):
            class_ = (thing["metadata"].get("labels") or {}).get(CLASS_LABEL)
            if class_ is not None and all(spec.name != class_ for spec in work.queue.spec.classes):
                removed[class_].append((kind, thing))
        for class_, parts in removed.items():
            # An operator that was ended half-way left any of its objects, with the Deployment or without.
            deployment = next((thing for kind, thing in parts if kind is self.cluster.applied), None)
            seen = snapshot.find(class_)
            left = seen.unfinished if seen is not None else 0
            if left and deployment is not None:
                if not (deployment.get("spec") or {}).get("replicas"):
                    name = deployment["metadata"]["name"]
                    await self.cluster.api.merge(DEPLOYMENTS, work.key[0], name, {"spec": {"replicas": 1}})
                message = (
                    f"class {class_} was removed with {left} jobs left; its workers stay until they are worked off"
                )
                work.conditions.append(Condition("ClassHasJobs", "True", "JobsLeft", message))
                continue
            log.info("class %s of JobQueue %s/%s was removed and has no job left: its workers go", class_, *work.key)
            for kind, thing in parts:
                await kind.end(work.key[0], thing["metadata"]["name"])


def _of_manifest(work: Work) -> list[Condition]:
    assert work.queue is not None  # noqa: S101 - as above
    found: dict[str, list[str]] = {}
    for spec in work.queue.spec.classes:
        for warning in draining.warnings(spec):
            found.setdefault(str(warning.condition), []).append(warning.message)
    return [Condition(type_, "True", type_, "; ".join(messages)) for type_, messages in found.items()]
