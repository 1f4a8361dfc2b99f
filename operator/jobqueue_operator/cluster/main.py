"""`jobqueue-operator`: the process. Waits for the Lease, then watches, plans and acts until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kubernetes.aio import client as kubernetes_client
from kubernetes.aio import config as kubernetes_config

from jobqueue.errors import ConfigurationError
from jobqueue.worker import logs
from jobqueue_operator.cluster import handlers, leader, metrics
from jobqueue_operator.cluster.connecting import Connecting
from jobqueue_operator.cluster.events import Events
from jobqueue_operator.cluster.health import Health, HealthServer
from jobqueue_operator.cluster.reconciling import Reconciler
from jobqueue_operator.cluster.rounds import Rounds
from jobqueue_operator.cluster.secrets import Secrets
from jobqueue_operator.cluster.settings import OperatorSettings, load
from jobqueue_operator.cluster.store import Store
from jobqueue_operator.cluster.telling import Teller
from jobqueue_operator.planner.workload.names import MANAGER, MANAGER_LABEL
from jobqueue_operator.platforms.kubernetes import api as kubernetes_api
from jobqueue_operator.platforms.kubernetes.api import Api, ApiError, Kind
from jobqueue_operator.platforms.kubernetes.applied import Applied
from jobqueue_operator.platforms.kubernetes.informer import Informer, Informers
from jobqueue_operator.platforms.kubernetes.platform import Cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubernetes.aio.client import ApiClient

log = logging.getLogger(__name__)

LIST_AGAIN = 60.0
"""Seconds after which all manifests are listed anew, whatever the watch said."""
STALLED = 12.0
"""Ticks without the end of a round after which the process is to be started again; at least a minute."""
LEAST_STALLED = 60.0
BETWEEN = 0.5
"""Seconds between two rounds at least, whatever rings."""
DEEPEST = 20_000
"""Python's own limit of nesting: an API server takes objects 10,000 deep, one of which may not end the operator."""
OURS = frozenset({
    kubernetes_api.PODS, kubernetes_api.DEPLOYMENTS, kubernetes_api.DISRUPTION_BUDGETS, kubernetes_api.SERVICE_ACCOUNTS,
    kubernetes_api.NETWORK_POLICIES,
})  # fmt: skip
"""Kinds of object that are made for a JobQueue, and watched by label."""
_NOT_FOUND = 404


@dataclass(slots=True)
class Operator:
    """One process."""

    settings: OperatorSettings
    client: ApiClient
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    failed: str = ""
    rounds: Rounds | None = None
    _alive_at: float = field(default_factory=time.monotonic)
    _bell: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> int:
        """Work until stopped; return the exit status."""
        registry = metrics.registry(lambda: self.rounds)
        server = HealthServer(self.settings.health_port, self.health, lambda: metrics.render(registry))
        port = await server.start()
        log.info("serving /live, /ready and /metrics on port %d", port)
        self._take_signals()
        try:
            if self.settings.standalone:
                await self._act()
            else:
                await self._lead()
        finally:
            await server.stop()
        if self.failed:
            log.error("%s", self.failed)
            return 1
        return 0

    def health(self) -> Health:
        """Return how it is."""
        rounds = self.rounds
        since = time.monotonic() - (rounds.moved_at if rounds is not None else self._alive_at)
        live = since < max(STALLED * self.settings.tick, LEAST_STALLED)
        if rounds is None:
            return Health(live, live, leading=False, rounds=0, why="waiting for the Lease")
        why = f"{rounds.rounds} rounds; the last step was done {since:.0f}s ago"
        return Health(live, live and rounds.rounds > 0, leading=True, rounds=rounds.rounds, why=why)

    async def _lead(self) -> None:
        settings = self.settings
        leading = asyncio.create_task(
            leader.lead(
                self.client,
                namespace=settings.lease_namespace,
                name=settings.lease_name,
                identity=settings.identity,
                act=self._act,
                tried=self._tried,
            )
        )
        stopping = asyncio.create_task(self.stopping.wait())
        await asyncio.wait({leading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if self.rounds is None:
            leading.cancel()
        stopping.cancel()
        await asyncio.gather(leading, stopping, return_exceptions=True)
        if leading.done() and not leading.cancelled() and (error := leading.exception()) is not None:
            raise error

    def _tried(self) -> None:
        self._alive_at = time.monotonic()

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stopping.set)

    async def _act(self) -> None:
        """Watch, and do round after round. Nothing is changed on the way out: workers go on."""
        api = Api(self.client)
        queues, capacities = Store(), Store()
        try:
            await self._list(api, queues, capacities)
        except ApiError as error:
            self.failed = _refusal(error)
            return
        labels = f"{MANAGER_LABEL}={MANAGER}"
        kinds = OURS if self.settings.network_policy else OURS - {kubernetes_api.NETWORK_POLICIES}
        watched = {kind: self._informers(api, kind, labels) for kind in kinds}
        watched[kubernetes_api.AUTOSCALERS] = self._informers(api, kubernetes_api.AUTOSCALERS, "")
        for informers in watched.values():
            informers.start()
        registered = handlers.registry(queues, capacities, self._bell.set, kubeconfig=self.settings.kubeconfig)
        begun = asyncio.Event()
        kopf = asyncio.create_task(handlers.watch(registered, self.settings.places, self.stopping, begun))
        try:
            await asyncio.gather(*(informers.synced() for informers in watched.values()))
            await begun.wait()
            self._take_signals()  # Kopf has set its own
            with tempfile.TemporaryDirectory(prefix="jobqueue-") as folder:
                self.rounds = self._rounds(api, queues, capacities, watched, Path(folder))
                await self._go_round(api, queues, capacities, kopf)
                await self.rounds.close()
        finally:
            self.stopping.set()
            await asyncio.gather(*(informers.stop() for informers in watched.values()))
            await asyncio.gather(kopf, return_exceptions=True)

    async def _go_round(self, api: Api, queues: Store, capacities: Store, kopf: asyncio.Task[None]) -> None:
        assert self.rounds is not None  # noqa: S101 - for the type checker
        listed_at = time.monotonic()
        while not self.stopping.is_set():
            began = time.monotonic()
            self._bell.clear()
            if began - listed_at > LIST_AGAIN:
                listed_at = began
                try:
                    await self._list(api, queues, capacities)
                except ApiError as error:
                    log.warning("the manifests were not listed anew: %s", error)
            try:
                await self.rounds.round()
            except Exception:
                log.exception("a round failed; nothing more is changed until one succeeds")
            if kopf.done():
                self.failed = f"the watch of the manifests ended: {kopf.exception()}"
                return
            await asyncio.sleep(BETWEEN)
            await self._pause(self.rounds.next_look() - (time.monotonic() - began))

    async def _pause(self, seconds: float) -> None:
        waits = [asyncio.create_task(event.wait()) for event in (self.stopping, self._bell)]
        try:
            await asyncio.wait(waits, timeout=max(seconds, 0.0), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _list(self, api: Api, queues: Store, capacities: Store) -> None:
        for kind, store in ((kubernetes_api.JOB_QUEUES, queues), (kubernetes_api.DOWNSTREAM_CAPACITIES, capacities)):
            found = [await api.list(kind, place) for place in self.settings.places]
            store.replace(thing for things, _ in found for thing in things)

    def _informers(self, api: Api, kind: Kind, labels: str) -> Informers:
        return Informers(Informer(api, kind, place, labels=labels) for place in self.settings.places)

    def _rounds(
        self, api: Api, queues: Store, capacities: Store, watched: dict[Kind, Informers], folder: Path
    ) -> Rounds:
        deployments = watched[kubernetes_api.DEPLOYMENTS]
        cluster = Cluster(
            api=api,
            deployments=deployments,
            applied=Applied(api, kubernetes_api.DEPLOYMENTS, deployments),
            disruption_budgets=Applied(
                api, kubernetes_api.DISRUPTION_BUDGETS, watched[kubernetes_api.DISRUPTION_BUDGETS]
            ),
            network_policies=Applied(
                api, kubernetes_api.NETWORK_POLICIES, watched.get(kubernetes_api.NETWORK_POLICIES)
            ),
        )
        return Rounds(
            settings=self.settings,
            queues=queues,
            capacities=capacities,
            connecting=Connecting(Secrets(api), self.settings, folder, self._bell.set),
            reconciler=Reconciler(
                cluster,
                watched[kubernetes_api.PODS],
                watched[kubernetes_api.AUTOSCALERS],
                Applied(api, kubernetes_api.SERVICE_ACCOUNTS, watched[kubernetes_api.SERVICE_ACCOUNTS]),
                self.settings.network_policy,
            ),
            teller=Teller(api, Events(api, reporter=self.settings.identity), queues),
        )


def _refusal(error: ApiError) -> str:
    if error.status == _NOT_FOUND:
        return "the API server knows no JobQueues: install the CustomResourceDefinitions (crds.enabled of the chart)"
    return f"the manifests cannot be listed: {error}"


async def _load(**given: str) -> None:
    await kubernetes_config.load_kube_config(**given)


async def operate(settings: OperatorSettings) -> int:
    """Connect to the API server and run one operator; return the exit status."""
    try:
        if settings.kubeconfig is not None:
            await _load(config_file=str(settings.kubeconfig))
        elif "KUBERNETES_SERVICE_HOST" in os.environ:
            kubernetes_config.load_incluster_config()
        else:
            await _load()
    except (kubernetes_config.ConfigException, OSError) as error:
        log.error("no way to an API server: %s; set JOBQUEUE_OPERATOR_KUBECONFIG or run in a pod", error)  # noqa: TRY400
        return 2
    async with kubernetes_client.ApiClient() as client:
        return await Operator(settings, client).run()


def _usage() -> str:
    lines = ["jobqueue-operator: watches JobQueues and runs their workers. It takes no arguments; its variables:", ""]
    for name, about in OperatorSettings.model_fields.items():
        lines.append(f"  JOBQUEUE_OPERATOR_{name.upper()}")
        lines.append(f"      {about.description}")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until SIGTERM. Exit status: 0 stopped, 1 failed, 2 wrong settings."""
    sys.setrecursionlimit(DEEPEST)
    given = sys.argv[1:] if arguments is None else arguments
    if given:
        sys.stdout.write(_usage())
        sys.exit(0 if given[0] in {"-h", "--help"} else 2)
    try:
        settings = load()
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    logs.configure(settings)
    logging.getLogger("kopf").setLevel(logging.WARNING)
    if settings.kubeconfig is not None:
        os.environ["KUBECONFIG"] = str(settings.kubeconfig)  # where Kopf looks
    sys.exit(asyncio.run(operate(settings)))


if __name__ == "__main__":
    main()
