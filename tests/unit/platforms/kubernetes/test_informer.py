"""What is known of objects follows what an API server tells, whichever way it stops telling."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest

from jobqueue_operator.platforms.kubernetes import informer as module
from jobqueue_operator.platforms.kubernetes.api import PODS, ApiError, Unreachable
from jobqueue_operator.platforms.kubernetes.informer import Informer, Informers
from services.waiting import eventually_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from jobqueue_operator.platforms.kubernetes.api import Kind, Object


def pod(name: str, version: int, namespace: str = "shop", **fields: Any) -> Object:
    return {"metadata": {"name": name, "namespace": namespace, "resourceVersion": str(version), **fields}}


class FakeApi:
    """Answers lists with `listed`, and each watch with the next of `watches`; after the last it waits."""

    def __init__(self, *watches: list[Any], listed: list[Object] | None = None, version: str = "10") -> None:
        self.listed: list[Object] | Exception = listed or []
        self.version = version
        self.watches = deque(watches)
        self.lists = 0
        self.from_versions: list[str] = []

    async def list(self, kind: Kind, namespace: str | None, *, labels: str = "") -> tuple[list[Object], str]:
        assert (kind, namespace, labels) == (PODS, "shop", "a=b")
        self.lists += 1
        if isinstance(self.listed, Exception):
            raise self.listed
        return list(self.listed), self.version

    async def watch(
        self, kind: Kind, namespace: str | None, version: str, *, labels: str = ""
    ) -> AsyncIterator[tuple[str, Object]]:
        assert (kind, namespace, labels) == (PODS, "shop", "a=b")
        self.from_versions.append(version)
        if not self.watches:
            await asyncio.Event().wait()
        for change in self.watches.popleft():
            if isinstance(change, Exception):
                raise change
            yield change


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_LEAST", 0.001)


def made(api: FakeApi) -> Informer:
    return Informer(api, PODS, "shop", labels="a=b")  # type: ignore[arg-type]


async def settled(api: FakeApi, informer: Informer) -> set[str]:
    """Watch until the fake has told everything; return the names of what is known."""
    informer.start()

    async def over() -> bool:
        return not api.watches and bool(api.from_versions)

    await eventually_async(over, within=5)
    await informer.stop()
    return {name for _, name in informer.objects}


async def test_what_is_listed_and_then_changes_is_known() -> None:
    api = FakeApi(
        [("ADDED", pod("b", 11)), ("DELETED", pod("a", 12)), ("MODIFIED", pod("b", 13, uid="new"))],
        [],
        listed=[pod("a", 5)],
    )
    informer = made(api)
    assert await settled(api, informer) == {"b"}
    assert informer.objects["shop", "b"]["metadata"]["uid"] == "new"
    assert informer.synced.is_set()
    assert api.lists == 1, "a watch that the server ended is gone on with"
    assert api.from_versions[:2] == ["10", "13"]


async def test_a_bookmark_moves_the_version_and_nothing_else() -> None:
    api = FakeApi([("BOOKMARK", {"metadata": {"resourceVersion": "99"}})], [])
    assert await settled(api, made(api)) == set()
    assert (api.lists, api.from_versions[:2]) == (1, ["10", "99"])


@pytest.mark.parametrize(
    "broken", [ApiError(410, "too old"), Unreachable("the watch broke"), ("ADDED", {"metadata": {}}), KeyError("odd")]
)
async def test_a_watch_that_breaks_is_begun_anew_with_a_list(broken: Any) -> None:
    api = FakeApi([("ADDED", pod("b", 11)), broken], [], listed=[pod("a", 5)])
    assert await settled(api, made(api)) == {"a"}
    assert (api.lists, api.from_versions[:2]) == (2, ["10", "10"])


async def test_a_list_that_fails_is_tried_again_and_what_was_known_stays(caplog: pytest.LogCaptureFixture) -> None:
    api = FakeApi([Unreachable("gone")], listed=[pod("a", 5)])
    informer = made(api)
    informer.start()
    await asyncio.wait_for(informer.synced.wait(), 5)
    api.listed = Unreachable("nobody there")

    async def tried() -> bool:
        return api.lists > 3

    await eventually_async(tried, within=5)
    assert ("shop", "a") in informer.objects
    assert informer.broken_since is not None
    api.listed = []

    async def mended() -> bool:
        return informer.broken_since is None

    await eventually_async(mended, within=5)
    await informer.stop()
    assert informer.objects == {}
    assert [record.getMessage() for record in caplog.records].count("pods cannot be watched: nobody there") <= 1


@pytest.mark.parametrize("change", [[], [Unreachable("refused")]])
async def test_pauses_grow_while_watches_end_at_once(change: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", pause)
    monkeypatch.setattr(random, "uniform", lambda *_: 1.0)
    api = FakeApi(*([change] * 20))
    informer = made(api)
    informer.start()
    for _ in range(10_000):
        if not api.watches:
            break
        await sleep(0)
    await informer.stop()
    assert pauses[:20] == [min(0.001 * 2**n, module.PAUSE_MOST) for n in range(20)]


async def test_our_own_answer_is_known_before_the_watch_says_so() -> None:
    informer = made(FakeApi())
    informer.note(pod("a", 20, uid="ours"))
    assert informer.objects["shop", "a"]["metadata"]["uid"] == "ours"
    informer.note(pod("a", 19, uid="older"))
    assert informer.objects["shop", "a"]["metadata"]["uid"] == "ours"


async def test_an_answer_that_the_watch_has_gone_past_brings_nothing_back() -> None:
    api = FakeApi([("ADDED", pod("a", 11)), ("DELETED", pod("a", 12))])
    informer = made(api)
    await settled(api, informer)
    informer.note(pod("a", 11))
    assert informer.objects == {}
    informer.note(pod("a", 13))
    assert ("shop", "a") in informer.objects


async def test_a_watch_that_is_late_takes_no_newer_answer_away() -> None:
    class Late(FakeApi):
        async def watch(self, *args: Any, **options: Any) -> AsyncIterator[tuple[str, Object]]:
            if self.watches:
                informer.note(pod("a", 15, uid="ours"))
            async for change in super().watch(*args, **options):
                yield change

    api = Late([("MODIFIED", pod("a", 11)), ("DELETED", pod("a", 12))], listed=[pod("a", 5)])
    informer = made(api)
    await settled(api, informer)
    assert informer.objects["shop", "a"]["metadata"]["uid"] == "ours"


async def test_what_nobody_reads_is_not_kept() -> None:
    api = FakeApi([("ADDED", pod("b", 11, managedFields=[1]))], listed=[pod("a", 5, managedFields=[1])])
    informer = made(api)
    await settled(api, informer)
    informer.note(pod("c", 50, managedFields=[1]))
    assert [thing for thing in informer.objects.values() if "managedFields" in thing["metadata"]] == []


async def test_several_namespaces_are_seen_as_one() -> None:
    each = [Informer(FakeApi(), PODS, place) for place in ("shop", "other")]  # type: ignore[arg-type]
    both = Informers(each)
    both.note(pod("a", 11))
    both.note(pod("a", 12, namespace="other"))
    both.note(pod("a", 13, namespace="elsewhere"))
    assert [len(informer.objects) for informer in each] == [1, 1]
    assert both.get("shop", "a") == pod("a", 11)
    assert both.get("shop", "b") is None
    assert len(both.all()) == 2
