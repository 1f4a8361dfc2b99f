from __future__ import annotations

from typing import Any

import pydantic
import pytest

from jobqueue import App, Job, SyncJob
from jobqueue.errors import ConfigurationError


class Number(pydantic.BaseModel):
    n: int


def test_modes_follow_from_the_function() -> None:
    app = App()

    @app.handler("a", timeout=5)
    async def one(job: Job[Number]) -> None: ...
    @app.handler("b", version=2)
    def two(job: SyncJob[Number]) -> None: ...
    @app.handler("c", process=True, class_="slow")
    def three(job: SyncJob[Any]) -> None: ...

    found = {key: app.find(*key) for key in app.kinds()}
    assert [(key, handler and handler.mode) for key, handler in found.items()] == [
        (("a", 1), "async"),
        (("b", 2), "thread"),
        (("c", 1), "process"),
    ]
    assert app.kinds("fast") == [("a", 1), ("b", 2)]
    assert app.kinds("slow") == [("a", 1), ("b", 2), ("c", 1)]
    assert app.find("a", 2) is None
    handler = app.find("a", 1)
    assert handler is not None
    assert handler.timeout == 5
    assert handler.payload_model is not None
    assert handler.payload_model.validate_python({"n": "3"}) == Number(n=3)
    assert (found["c", 1] or handler).payload_model is None
    assert one.__name__ == "one"  # returned unchanged
    del two, three


def test_models_defined_inside_a_function_are_found() -> None:
    app = App()

    class Local(pydantic.BaseModel):
        x: int

    @app.handler("a")
    async def handle(job: Job[Local]) -> None: ...

    del handle
    handler = app.find("a", 1)
    assert handler is not None
    assert handler.payload_model is not None
    assert handler.payload_model.validate_python({"x": 1}) == Local(x=1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kind": ""}, "kind must be"),
        ({"kind": "x" * 201}, "kind must be"),
        ({"kind": "a\0b"}, "kind must be"),
        ({"version": 0}, "version must be"),
        ({"version": True}, "version must be"),
        ({"timeout": 0}, "timeout must be"),
        ({"timeout": float("inf")}, "timeout must be"),
    ],
)
def test_bad_registrations_are_refused(options: dict[str, Any], says: str) -> None:
    async def handle(job: Job[Any]) -> None: ...

    with pytest.raises(ConfigurationError, match=says):
        App().handler(**{"kind": "a", **options})(handle)


def test_functions_of_the_wrong_shape_are_refused() -> None:
    async def wrong_job(job: SyncJob[Any]) -> None: ...
    def wrong_sync(job: Job[Any]) -> None: ...
    async def nothing() -> None: ...
    async def two(job: Job[Any], other: int) -> None: ...

    for function in (wrong_job, wrong_sync, nothing, two):
        with pytest.raises(ConfigurationError):
            App().handler("a")(function)


def test_duplicates_are_refused_and_both_named() -> None:
    app = App()

    @app.handler("a")
    async def first(job: Job[Any]) -> None: ...

    async def second(job: Job[Any]) -> None: ...

    with pytest.raises(ConfigurationError, match=r"first.*second"):
        app.handler("a")(second)
    del first
    app.authorize(lambda _job: True)
    with pytest.raises(ConfigurationError, match="twice"):
        app.authorize(lambda _job: True)


def test_a_generator_is_refused_and_an_object_with_an_async_call_is_async() -> None:
    app = App()

    def yields(job: object) -> object:
        yield job

    async def yields_too(job: object) -> object:
        yield job

    class Callable_:  # noqa: N801
        async def __call__(self, job: object) -> None: ...

    for function in (yields, yields_too):
        with pytest.raises(ConfigurationError, match="is a generator"):
            app.handler("k")(function)
    app.handler("k")(Callable_())
    handler = app.find("k", 1)
    assert handler is not None
    assert handler.mode == "async"
