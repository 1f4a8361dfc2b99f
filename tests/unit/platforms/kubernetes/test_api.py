"""The verbs, against an HTTP server that says what a test has it say."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from jobqueue_operator.platforms.kubernetes import api as module
from jobqueue_operator.platforms.kubernetes.api import DEPLOYMENTS, JOB_QUEUES, PODS, Api, ApiError, Unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

pytestmark = pytest.mark.asyncio(loop_scope="module")

ONE = {"metadata": {"name": "a", "namespace": "shop", "resourceVersion": "7"}}


class Server:
    """Records requests; `answer` makes each response."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        self.answer: Callable[[web.Request], Awaitable[web.StreamResponse]] = self.say(ONE)
        self.url = ""

    @staticmethod
    def say(*bodies: Any, status: int = 200) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        left = list(bodies)

        async def answer(_: web.Request) -> web.StreamResponse:
            body = left.pop(0) if len(left) > 1 else left[0]
            return web.Response(status=status, text=body if isinstance(body, str) else json.dumps(body))

        return answer

    async def handle(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        body = json.loads(text) if text else None
        self.asked.append((request.method, request.path, dict(request.query), body))
        return await self.answer(request)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def _server() -> AsyncIterator[Server]:
    made = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.fixture
def server(_server: Server) -> Server:
    _server.asked.clear()
    _server.answer = _server.say(ONE)
    return _server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(_server: Server) -> AsyncIterator[Api]:
    async with ApiClient(Configuration(host=_server.url)) as client:
        yield Api(client)


async def watched(api: Api) -> list[tuple[str, Any]]:
    return [change async for change in api.watch(PODS, "shop", "5", labels="a=b")]


def lines(*changes: Any) -> str:
    return "".join(json.dumps({"type": kind, "object": thing}) + "\n" for kind, thing in changes)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path("shop"), "/api/v1/namespaces/shop/pods"),
        (DEPLOYMENTS.path("shop", "a"), "/apis/apps/v1/namespaces/shop/deployments/a"),
        (
            JOB_QUEUES.path("shop", "a", "status"),
            "/apis/jobqueue.dev/v1alpha1/namespaces/shop/jobqueues/a/status",
        ),
    ],
)
async def test_paths(path: str, expected: str) -> None:
    assert path == expected


async def test_each_verb_asks_once_and_for_that(server: Server, api: Api) -> None:
    assert await api.get(PODS, "shop", "a") == ONE
    await api.apply(DEPLOYMENTS, ONE)
    await api.apply_status(JOB_QUEUES, ONE)
    await api.merge(PODS, "shop", "a", {"x": None})
    await api.create(PODS, ONE)
    await api.delete(PODS, "shop", "a", uid="u")
    forced = {"fieldManager": "jobqueue-operator", "force": "true"}
    ours = {"fieldManager": "jobqueue-operator"}
    where = "/api/v1/namespaces/shop/pods"
    assert server.asked == [
        ("GET", f"{where}/a", {}, None),
        ("PATCH", "/apis/apps/v1/namespaces/shop/deployments/a", forced, ONE),
        ("PATCH", "/apis/jobqueue.dev/v1alpha1/namespaces/shop/jobqueues/a/status", forced, ONE),
        ("PATCH", f"{where}/a", ours, {"x": None}),
        ("POST", where, ours, ONE),
        ("DELETE", f"{where}/a", {}, {"propagationPolicy": "Background", "preconditions": {"uid": "u"}}),
    ]


async def test_a_list_is_read_page_by_page(server: Server, api: Api) -> None:
    server.answer = server.say(
        {"items": [ONE], "metadata": {"continue": "more"}}, {"items": None, "metadata": {"resourceVersion": "9"}}
    )
    assert await api.list(PODS, None, labels="a=b") == ([ONE], "9")
    assert [query.get("continue") for _, _, query, _ in server.asked] == [None, "more"]
    assert {query["labelSelector"] for _, _, query, _ in server.asked} == {"a=b"}


async def test_what_is_not_there_is_none_and_ended_already(server: Server, api: Api) -> None:
    server.answer = server.say({"message": "not found"}, status=404)
    assert await api.get(PODS, "shop", "a") is None
    await api.delete(PODS, "shop", "a")
    with pytest.raises(ApiError, match="not found"):
        await api.merge(PODS, "shop", "a", {})


@pytest.mark.parametrize(
    ("said", "message"), [({"message": "no such field"}, "no such field"), ("<html>", "HTTP 422"), ([], "HTTP 422")]
)
async def test_a_refusal_is_the_server_s_own_words(server: Server, api: Api, said: Any, message: str) -> None:
    server.answer = server.say(said, status=422)
    with pytest.raises(ApiError, match=message) as caught:
        await api.apply(PODS, ONE)
    assert caught.value.status == 422
    assert not isinstance(caught.value, Unreachable)


@pytest.mark.parametrize("said", ["", "<html>", "[]"])
async def test_an_answer_that_cannot_be_read_is_none(server: Server, api: Api, said: str) -> None:
    server.answer = server.say(said)
    with pytest.raises(Unreachable):
        await api.get(PODS, "shop", "a")


async def test_a_server_that_is_not_there(server: Server) -> None:
    async with ApiClient(Configuration(host="http://127.0.0.1:1")) as client:
        with pytest.raises(Unreachable, match="cannot be reached"):
            await Api(client).get(PODS, "shop", "a")
        with pytest.raises(Unreachable, match="cannot be reached"):
            await watched(Api(client))
    assert server.asked == []


async def test_a_server_that_says_nothing(server: Server, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:

    async def never(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    server.answer = never
    monkeypatch.setattr(module, "DEADLINE", 0.05)
    with pytest.raises(Unreachable, match=r"did not answer within|cannot be reached"):
        await api.get(PODS, "shop", "a")
    with pytest.raises(Unreachable, match="did not begin a watch within"):
        await watched(api)


async def test_a_watch_yields_each_change(server: Server, api: Api) -> None:
    server.answer = server.say(lines(("ADDED", ONE), ("BOOKMARK", ONE)))
    assert await watched(api) == [("ADDED", ONE), ("BOOKMARK", ONE)]
    (_, path, query, _) = server.asked[0]
    assert path == "/api/v1/namespaces/shop/pods"
    assert query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "5",
        "timeoutSeconds": str(module.WATCH_SPAN),
        "labelSelector": "a=b",
    }


async def test_a_large_object_is_one_change_like_any_other(server: Server, api: Api) -> None:
    large = ONE | {"data": "x" * 2_000_000}
    server.answer = server.say(lines(("ADDED", large)))
    assert await watched(api) == [("ADDED", large)]


async def test_a_line_without_end_is_a_watch_that_broke(server: Server, api: Api) -> None:
    server.answer = server.say("x" * 5_000_000)
    with pytest.raises(Unreachable, match="the watch broke"):
        await watched(api)


async def test_what_a_watch_says_of_its_end_has_a_status(server: Server, api: Api) -> None:
    server.answer = server.say(lines(("ERROR", {"code": 410, "message": "too old resource version"})))
    with pytest.raises(ApiError, match="too old") as caught:
        await watched(api)
    assert caught.value.status == 410
    server.answer = server.say(lines(("ERROR", {})))
    with pytest.raises(ApiError, match="the watch failed") as caught:
        await watched(api)
    assert caught.value.status == 500


@pytest.mark.parametrize("text", ["nonsense\n", "{}\n", "[]\n", lines(("ADDED", {})), lines(("ADDED", None))])
async def test_a_watch_that_cannot_be_read_broke(server: Server, api: Api, text: str) -> None:
    server.answer = server.say(text)
    with pytest.raises(Unreachable, match="the watch broke"):
        await watched(api)


async def test_a_watch_that_is_refused(server: Server, api: Api) -> None:
    server.answer = server.say({"message": "pods is forbidden"}, status=403)
    with pytest.raises(ApiError, match="forbidden") as caught:
        await watched(api)
    assert caught.value.status == 403
