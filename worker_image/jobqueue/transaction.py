"""A job's own transaction: effect and acknowledgement commit together, or neither does.

The logic is written once, as generators that yield driver calls. On an asyncio connection each call is an
awaitable, on a synchronous one it is already the result; the two drivers at the end differ in nothing else.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

import psycopg
from psycopg.pq import TransactionStatus

from jobqueue import queue
from jobqueue.errors import StaleLease

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator
    from types import TracebackType

__all__ = ["AsyncScope", "Lease", "SyncScope", "Transaction"]

C = TypeVar("C", bound="psycopg.AsyncConnection[Any] | psycopg.Connection[Any]")
R = TypeVar("R")

RECHECK_PAUSE = 0.2  # seconds between two tries to learn whether a COMMIT went through

# Lowered, never raised: a setting of 0 means none. `current_setting` shows a unit that interval understands.
_LOWER = """
SELECT set_config(name, %s::bigint::text, true) FROM unnest(%s::text[]) AS name
 WHERE current_setting(name)::interval = '0' OR current_setting(name)::interval > make_interval(secs => %s / 1000.0)
"""
_TRANSACTION_TIMEOUT_SINCE = 170_000  # server_version


class Lease(Protocol):
    """What a job needs from whoever holds its lease: the worker, or a test."""

    id: int
    token: int
    schema: str
    acked: bool  # a transaction has completed the job; nothing else may be written for it
    committing: bool  # a COMMIT is on its way; the handler must not be interrupted now

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked for the job to be cancelled."""

    def left(self) -> float:
        """Seconds until the lease ends, unless it is renewed; by this machine's clock, 0 when it is over."""

    def connection(self) -> Any:
        """Lend an idle connection in autocommit mode, as a context manager of the connection's own kind."""


class Transaction(Generic[C]):
    """The open transaction inside `job.transaction()`."""

    def __init__(self, connection: C, lease: Lease) -> None:
        self.connection = connection
        self._lease = lease

    @overload
    def once(self: Transaction[psycopg.AsyncConnection[Any]], key: str) -> Awaitable[bool]: ...
    @overload
    def once(self: Transaction[psycopg.Connection[Any]], key: str) -> bool: ...
    def once(self, key: str) -> Any:
        """Record the effect `key` (1 to 512 characters): True the first time ever, False when it is recorded.

        Exactly once holds for what this transaction writes to the queue's own database; nothing else.
        Raises StaleLease when the job is no longer this worker's.
        """
        connection: Any = self.connection
        return queue.effect(connection, self._lease.id, self._lease.token, key, schema=self._lease.schema)

    @overload
    def execute(
        self: Transaction[psycopg.AsyncConnection[Any]], query: Any, params: Any = None
    ) -> Awaitable[psycopg.AsyncCursor[Any]]: ...
    @overload
    def execute(self: Transaction[psycopg.Connection[Any]], query: Any, params: Any = None) -> psycopg.Cursor[Any]: ...
    def execute(self, query: Any, params: Any = None) -> Any:
        """Run one statement in the transaction; returns psycopg's cursor."""
        return self.connection.execute(query, params)


class _Scope(Generic[C]):
    """Begin, and commit with the acknowledgement or roll back: the steps of both kinds of `job.transaction()`."""

    def __init__(self, lease: Lease, connection: C | None, *, ack: bool) -> None:
        self._lease = lease
        self._connection = connection
        self._ack = ack
        self._lent: Any = None

    def _begin(self) -> Generator[Any, Any, Transaction[C]]:
        if self._lease.acked:
            raise StaleLease(f"job {self._lease.id} is acknowledged already; nothing more can be written for it")
        if self._connection is None:
            lent = self._lease.connection()
            self._connection = yield _enter(lent)
            self._lent = lent
        connection: Any = self._connection
        try:
            _check_idle(connection)
            if connection.autocommit:
                yield connection.execute("BEGIN")
            milliseconds = max(1, int(self._lease.left() * 1000))
            names = ["idle_in_transaction_session_timeout"]
            if connection.info.server_version >= _TRANSACTION_TIMEOUT_SINCE:
                names.append("transaction_timeout")
            yield connection.execute(_LOWER, (milliseconds, names, milliseconds))
        except BaseException as error:
            yield from self._give_back(error)
            raise
        return Transaction(connection, self._lease)

    def _end(self, error: BaseException | None) -> Generator[Any, Any, None]:
        try:
            if error is None:
                yield from self._commit()
        except BaseException as failure:
            yield from self._undo()
            yield from self._give_back(failure)
            raise
        if error is not None:
            yield from self._undo()
        yield from self._give_back(error)

    def _commit(self) -> Generator[Any, Any, None]:
        connection: Any = self._connection
        lease = self._lease
        if not self._ack:
            yield connection.commit()
            return
        # Last, because it locks the lease exclusively to the end: expiry after it is harmless.
        yield queue.complete(connection, lease.id, lease.token, schema=lease.schema)
        try:
            yield connection.commit()
        except psycopg.OperationalError as lost:
            if not (connection.closed or connection.broken):
                raise
            yield from self._recheck(lost)
        lease.acked = True

    def _recheck(self, lost: psycopg.OperationalError) -> Generator[Any, Any, None]:
        """Learn on another connection whether the COMMIT whose reply was lost went through.

        `complete` under the same token answers `already` when it did. When it did not, it would complete the job
        without its effect, so it is undone. It waits for the old transaction's locks, so the answer is final.
        """
        lease = self._lease
        while lease.left() > 0:
            lent = lease.connection()
            try:
                fresh = yield _enter(lent)
                try:
                    yield fresh.execute("BEGIN")
                    answer = yield queue.complete(fresh, lease.id, lease.token, schema=lease.schema)
                    yield fresh.rollback()
                finally:
                    yield _leave(lent)
            except (psycopg.OperationalError, psycopg.InterfaceError, OSError):
                yield RECHECK_PAUSE
                continue
            if answer == "already":
                return
            break
        raise lost

    def _undo(self) -> Generator[Any, Any, None]:
        connection: Any = self._connection
        if not (connection.closed or connection.broken):
            try:
                yield connection.rollback()
            except psycopg.Error:
                yield connection.close()

    def _give_back(self, error: BaseException | None) -> Generator[Any, Any, None]:
        del error
        if self._lent is not None:
            lent, self._lent = self._lent, None
            yield _leave(lent)


class AsyncScope(_Scope["psycopg.AsyncConnection[Any]"]):
    """`async with job.transaction() as tx`."""

    async def __aenter__(self) -> Transaction[psycopg.AsyncConnection[Any]]:
        return await _drive_async(self._begin())

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        # Not interrupted half way through a COMMIT: whoever cancels waits for its answer.
        self._lease.committing = True
        ending = asyncio.ensure_future(_drive_async(self._end(error)))
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            await asyncio.wait({ending})
            if not ending.cancelled():
                ending.exception()  # retrieved: the cancellation is what the handler sees
            raise
        finally:
            self._lease.committing = False


class SyncScope(_Scope["psycopg.Connection[Any]"]):
    """`with job.transaction() as tx`."""

    def __enter__(self) -> Transaction[psycopg.Connection[Any]]:
        return _drive_sync(self._begin())

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._lease.committing = True
        try:
            _drive_sync(self._end(error))
        finally:
            self._lease.committing = False


def _check_idle(connection: Any) -> None:
    status = connection.info.transaction_status
    if status != TransactionStatus.IDLE:
        raise RuntimeError(
            f"job.transaction(connection=…) takes an idle connection; this one is {status.name}. "
            "Commit or roll back first"
        )


def _enter(manager: Any) -> Any:
    return manager.__aenter__() if hasattr(manager, "__aenter__") else manager.__enter__()


def _leave(manager: Any) -> Any:
    leave = manager.__aexit__ if hasattr(manager, "__aexit__") else manager.__exit__
    return leave(None, None, None)


async def _drive_async(steps: Generator[Any, Any, R]) -> R:
    try:
        step = next(steps)
        while True:
            try:
                if isinstance(step, float):
                    await asyncio.sleep(step)
                elif inspect.isawaitable(step):
                    step = await step
            except BaseException as error:  # noqa: BLE001 - handed to the steps, which decide
                step = steps.throw(error)
            else:
                step = steps.send(step)
    except StopIteration as end:
        result: R = end.value
        return result


def _drive_sync(steps: Generator[Any, Any, R]) -> R:
    try:
        step = next(steps)
        while True:
            if isinstance(step, float):
                time.sleep(step)
            step = steps.send(step)
    except StopIteration as end:
        result: R = end.value
        return result
