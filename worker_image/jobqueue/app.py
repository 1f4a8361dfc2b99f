"""An application's handlers: what a worker understands, and how each is run."""

from __future__ import annotations

import functools
import importlib
import inspect
import math
import sys
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import PydanticUserError, TypeAdapter

from jobqueue.errors import ConfigurationError
from jobqueue.job import Job, SyncJob

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["App", "Handler", "load"]

F = TypeVar("F", bound="Callable[..., Any]")
Mode = Literal["async", "thread", "process"]

LONGEST_KIND = 200
LARGEST_VERSION = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Handler:
    """One kind and version, and the function that runs it."""

    kind: str
    version: int
    timeout: float | None
    """Seconds; None: the class's."""
    function: Callable[..., Any]
    payload_model: TypeAdapter[Any] | None
    """Validates the payload; None hands it over as it came."""
    mode: Mode
    class_: str | None = None
    """Only workers of this job class offer it; None: every class's."""

    @property
    def is_async(self) -> bool:
        """Whether the function is an `async def`."""
        return _is_async(self.function)


class App:
    """A set of handlers. A worker is told where it is: `--app shop.jobs:app`."""

    def __init__(self) -> None:
        self._handlers: dict[tuple[str, int], Handler] = {}
        self.authorizer: Callable[..., Any] | None = None

    def handler(
        self,
        kind: str,
        *,
        version: int = 1,
        timeout: float | None = None,
        process: bool = False,
        class_: str | None = None,
    ) -> Callable[[F], F]:
        """Register a function as the handler of `kind` and `version`.

        `async def f(job: Job[M])` runs in the worker's event loop; `def f(job: SyncJob[M])` in a thread, or with
        `process=True` in a process of its own for each slot, for CPU-bound or untrusted code. M is anything
        pydantic validates. `timeout`: seconds an attempt may take, at most the class's (its default).
        The function is returned unchanged. Raises ConfigurationError.
        """

        def register(function: F) -> F:
            self._add(_describe(function, kind, version, timeout, class_, process=process))
            return function

        return register

    def authorize(self, function: F) -> F:
        """Register the check that runs before each handler, `(async) def f(job) -> bool`.

        The actor may have lost its rights since it enqueued. Only True lets the handler run; any other answer, and any
        exception, makes the job dead.
        """
        if self.authorizer is not None:
            raise ConfigurationError("@app.authorize is given twice; combine the checks in one function")
        self.authorizer = function
        return function

    def kinds(self, class_: str | None = None) -> list[tuple[str, int]]:
        """List the kinds and versions offered by workers of `class_`, sorted."""
        return sorted(
            key for key, handler in self._handlers.items() if class_ is None or handler.class_ in {None, class_}
        )

    def find(self, kind: str, version: int) -> Handler | None:
        """Return the handler of `kind` and `version`, or None."""
        return self._handlers.get((kind, version))

    def _add(self, handler: Handler) -> None:
        key = (handler.kind, handler.version)
        if key in self._handlers:
            other = self._handlers[key].function
            raise ConfigurationError(
                f"handler {handler.kind}@{handler.version} is registered twice: {other.__module__}."
                f"{other.__qualname__} and {handler.function.__module__}.{handler.function.__qualname__}"
            )
        self._handlers[key] = handler


def _describe(
    function: Callable[..., Any],
    kind: str,
    version: int,
    timeout: float | None,
    class_: str | None,
    *,
    process: bool,
) -> Handler:
    where = f"handler {kind!r}"
    if not isinstance(kind, str) or not 1 <= len(kind) <= LONGEST_KIND or "\0" in kind:
        raise ConfigurationError(f"{where}: kind must be a string of 1 to {LONGEST_KIND} characters")
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= LARGEST_VERSION:
        raise ConfigurationError(f"{where}: version must be a whole number from 1, not {version!r}")
    if timeout is not None and not (math.isfinite(timeout) and timeout > 0):
        raise ConfigurationError(f"{where}: timeout must be seconds above 0, not {timeout!r}")
    if any(
        check(form) for form in _forms(function) for check in (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    ):
        raise ConfigurationError(f"{where}: is a generator, whose body would never run; take the yield out")
    is_async = _is_async(function)
    mode: Mode = "process" if process else "async" if is_async else "thread"
    return Handler(kind, version, timeout, function, _payload_model(function, where, is_async=is_async), mode, class_)


def _forms(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Return the function itself, and what calling it runs when it is an object of a class."""
    return function, getattr(type(function), "__call__", None)  # noqa: B004 - not whether, but which


def _defined(function: Callable[..., Any]) -> Any:
    """Return what holds the annotations: the function behind a partial, or the method that calls an object."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else _forms(function)[1]


def _is_async(function: Callable[..., Any]) -> bool:
    return any(inspect.iscoroutinefunction(form) for form in _forms(function))


def _payload_model(function: Callable[..., Any], where: str, *, is_async: bool) -> TypeAdapter[Any] | None:
    parameters = list(inspect.signature(function).parameters.values())
    wanted = Job if is_async else SyncJob
    if not parameters or any(p.default is p.empty and p.kind < p.VAR_POSITIONAL for p in parameters[1:]):
        raise ConfigurationError(f"{where}: must take one argument, the job")
    annotation = parameters[0].annotation
    if isinstance(annotation, str):
        try:
            annotation = typing.get_type_hints(_defined(function), localns=_locals_of_caller())[parameters[0].name]
        except (NameError, AttributeError, TypeError, KeyError) as error:
            raise ConfigurationError(f"{where}: cannot resolve the annotation {annotation!r}: {error}") from None
    if annotation is inspect.Parameter.empty:
        return None
    origin = typing.get_origin(annotation) or annotation
    if origin in {Job, SyncJob} and origin is not wanted:
        raise ConfigurationError(
            f"{where}: {'an async def takes Job' if is_async else 'a plain def takes SyncJob'}, not {origin.__name__}"
        )
    arguments = typing.get_args(annotation)
    if origin is not wanted or not arguments or arguments[0] is Any or isinstance(arguments[0], TypeVar):
        return None
    try:
        return TypeAdapter(arguments[0])
    except PydanticUserError as error:
        raise ConfigurationError(f"{where}: pydantic cannot validate {arguments[0]!r}: {error.message}") from None


def _locals_of_caller() -> dict[str, Any]:
    """Names around the decorated function, so that models defined inside a function resolve."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return dict(frame.f_locals) if frame is not None else {}


def load(reference: str) -> App:
    """Import `package.module:attribute` and return the App there. Raises ConfigurationError.

    The working directory is importable, as with `python -m`.
    """
    name, _, attribute = reference.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise ConfigurationError(f"app {reference}: there is no module {error.name}") from None
        raise ConfigurationError(f"app {reference}: importing it failed: {error}") from error
    except ConfigurationError:
        raise
    except Exception as error:
        raise ConfigurationError(f"app {reference}: importing it failed: {type(error).__name__}: {error}") from error
    app: Any = module
    for part in attribute.split("."):
        app = getattr(app, part, None)
    if not isinstance(app, App):
        what = "is missing" if app is None else f"is a {type(app).__name__}, not an App"
        raise ConfigurationError(f"app {reference}: {attribute} {what}")
    return app
