"""Objects are applied when they differ or when somebody changed them, and not otherwise."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from jobqueue_operator.platforms.kubernetes.api import DEPLOYMENTS
from jobqueue_operator.platforms.kubernetes.applied import Applied
from jobqueue_operator.platforms.kubernetes.informer import Informer, Informers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobqueue_operator.platforms.kubernetes.api import Kind, Object


class FakeApi:
    """One object, a Deployment unless it has no generations, `spec.replicas` of which is whatever was said last."""

    def __init__(self, *, generations: bool) -> None:
        self.generations = generations
        self.thing: Object | None = None
        self.version = 100
        self.uids = 0
        self.applied = 0
        self.deleted: list[Any] = []

    def set(self, spec: Mapping[str, Any]) -> Object:
        if self.thing is None:
            self.uids += 1
            self.thing = {"metadata": {"namespace": "shop", "name": "email", "uid": f"u{self.uids}"}}
        before, metadata = self.thing.get("spec"), self.thing["metadata"]
        self.thing["spec"] = {**(before or {}), **spec}
        if self.thing["spec"] != before:
            self.version += 1
            metadata["resourceVersion"] = str(self.version)
            if self.generations:
                metadata["generation"] = metadata.get("generation", 0) + 1
        return copy.deepcopy(self.thing)

    async def apply(self, kind: Kind, manifest: Mapping[str, Any]) -> Object:
        assert kind is DEPLOYMENTS
        self.applied += 1
        return self.set(manifest["spec"])

    async def delete(self, kind: Kind, namespace: str, name: str, *, uid: str | None = None) -> None:
        self.deleted.append((kind, namespace, name, uid))


class World:
    def __init__(self, *, watched: bool = True, generations: bool = True) -> None:
        self.api = FakeApi(generations=generations)
        self.informer = Informer(self.api, DEPLOYMENTS, None)  # type: ignore[arg-type]
        seen = Informers([self.informer]) if watched else None
        self.applied = Applied(self.api, DEPLOYMENTS, seen)  # type: ignore[arg-type]

    async def have(self, replicas: int = 2, *, put_back: bool = True) -> bool:
        def make() -> dict[str, Any]:
            return {"metadata": {"namespace": "shop", "name": "email"}, "spec": {"replicas": replicas}}

        return await self.applied.have("shop", "email", ("stamp", replicas), make, put_back=put_back)

    def somebody_sets(self, **spec: Any) -> None:
        self.informer.note(self.api.set(spec))

    def somebody_deletes(self) -> None:
        self.api.thing = None
        self.informer.objects.clear()

    @property
    def changed(self) -> Any:
        return self.applied.changed("shop", "email")


async def test_what_did_not_change_is_applied_once() -> None:
    world = World()
    assert not await world.have()
    assert not await world.have()
    assert world.api.applied == 1
    assert world.changed is None


async def test_another_token_is_another_manifest_and_no_change_of_somebody_else() -> None:
    world = World()
    await world.have()
    assert not await world.have(3)
    assert world.api.applied == 2
    assert world.changed is None


async def test_what_somebody_changed_is_put_back_once() -> None:
    world = World()
    await world.have()
    world.somebody_sets(replicas=7)
    assert world.changed == ("stamp", 2)
    assert await world.have()
    assert world.api.thing is not None
    assert world.api.thing["spec"]["replicas"] == 2
    assert not await world.have()
    assert world.api.applied == 2


async def test_fields_that_are_not_ours_are_nothing_to_put_back() -> None:
    world = World()
    await world.have()
    world.somebody_sets(paused=True)
    assert not await world.have()
    assert not await world.have()
    assert world.api.applied == 2


async def test_what_somebody_deleted_is_put_back_and_said() -> None:
    world = World()
    await world.have()
    world.somebody_deletes()
    assert world.changed is None
    assert await world.have()
    assert not await world.have()
    assert world.api.applied == 2


async def test_what_the_watch_lost_from_sight_was_not_changed() -> None:
    world = World()
    await world.have()
    world.informer.objects.clear()
    assert not await world.have()
    assert world.api.applied == 2


async def test_what_somebody_made_anew_is_put_back() -> None:
    world = World()
    await world.have()
    world.somebody_deletes()
    world.somebody_sets(replicas=9)
    assert world.changed is None
    assert await world.have()


async def test_nothing_is_put_back_that_is_to_stay_as_somebody_made_it() -> None:
    world = World()
    await world.have()
    world.somebody_sets(replicas=7)
    assert not await world.have(put_back=False)
    world.somebody_deletes()
    assert not await world.have(put_back=False)
    assert world.api.applied == 1


async def test_what_is_not_watched_is_applied_once_a_token() -> None:
    world = World(watched=False)
    await world.have()
    assert not await world.have()
    assert not await world.have(3)
    assert world.api.applied == 2
    assert world.changed is None


async def test_of_a_kind_without_generations_the_version_of_the_whole_tells() -> None:
    """A ServiceAccount: whoever changes anything raises its version, and putting back what was not changed does not."""
    world = World(generations=False)
    await world.have()
    world.somebody_sets(owned_by_others=True)
    assert not await world.have()
    world.somebody_sets(replicas=7)
    assert await world.have()
    assert not await world.have()
    world.somebody_deletes()
    assert await world.have()
    assert world.api.applied == 4


async def test_after_its_end_it_is_made_anew() -> None:
    world = World()
    await world.have()
    await world.applied.end("shop", "email", uid="u1")
    assert world.api.deleted == [(DEPLOYMENTS, "shop", "email", "u1")]
    world.somebody_deletes()
    assert not await world.have()
    assert world.api.applied == 2
