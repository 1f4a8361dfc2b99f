"""The queue's verbs: thin, typed, over the SQL functions of the same names.

Every verb is one function for both kinds of connection. On a `psycopg.AsyncConnection` it returns an awaitable, on a
`psycopg.Connection` the value itself::

    created = await queue.enqueue(async_conn, "email", "invoice.email", {"invoice_id": 7})
    created = queue.enqueue(conn, "email", "invoice.email", {"invoice_id": 7})

The statement runs in the caller's transaction, whatever that is. Errors of the queue are raised as the classes of
`jobqueue.errors`; everything else is psycopg's own. All times are aware datetimes, all durations timedeltas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar, overload

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from jobqueue import payload as json_payload
from jobqueue.errors import InvalidInput, from_database
from jobqueue.migrate import DEFAULT_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

P = ParamSpec("P")
T = TypeVar("T")

Row = tuple[Any, ...]

MAX_MEMORY = 16_384  # bytes


class Enqueued(NamedTuple):
    """`id` of the job, and whether this call created it (False: the idempotency key named an existing one)."""

    id: int
    created: bool


class Claimed(NamedTuple):
    """One claimed job. `attempt` counts from 1 within its budget; `token` fences every later write of this claim."""

    id: int
    class_: str
    kind: str
    version: int
    payload: Any
    attempt: int
    max_attempts: int
    token: int
    leased_until: datetime
    correlation_id: str | None
    actor_id: str | None
    tenant: str | None
    trace_context: dict[str, str] | None
    checkpoint: Any
    enqueued_at: datetime
    due_at: datetime
    suspect: bool


class Extended(NamedTuple):
    """`result`: extended, stale (stop: the lease is lost) or busy (being written at this moment; ask again)."""

    id: int
    leased_until: datetime | None
    cancel: bool
    result: str


class Acked(NamedTuple):
    """`result` of one row of a batch: what became of it, `already` on a repeat, or `stale`."""

    id: int
    result: str


class Failed(NamedTuple):
    """`result`: retry, dead, cancelled, already or stale; `run_after` when it is tried again."""

    id: int
    result: str
    run_after: datetime | None


class Registered(NamedTuple):
    """A worker's number, whether it is admitted under its downstream's limit, and its class's settings."""

    worker: int
    admitted: bool
    lease: timedelta
    settings: dict[str, Any]


class Heartbeat(NamedTuple):
    """`state`: active, waiting, retired or unknown; `cancel`: ids of its jobs that should stop."""

    state: str
    paused: bool
    cancel: list[int]


class Swept(NamedTuple):
    """What one sweep did, in jobs."""

    requeued: int
    dead: int
    cancelled: int
    unparked: int


class Maintained(NamedTuple):
    """One thing that maintenance did."""

    action: str
    detail: str
    rows: int


class NewJob(NamedTuple):
    """One job for `enqueue_many`; the fields are those of `enqueue`."""

    class_: str
    kind: str
    payload: Any
    version: int = 1
    key: str | None = None
    run_after: datetime | None = None
    priority: int = 0
    max_attempts: int | None = None
    tenant: str | None = None
    concurrency_key: str | None = None
    correlation_id: str | None = None
    actor_id: str | None = None
    trace_context: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Call(Generic[T]):
    """A statement ready to run: `text` with `{schema}`, its parameters, and how to read its rows."""

    text: str
    params: Sequence[Any]
    read: Callable[[list[Row]], T]
    schema: str


class Verb(Generic[P, T]):
    """A function of the queue, callable with either kind of connection first."""

    def __init__(self, build: Callable[P, Call[T]]) -> None:
        self._build = build
        self.__doc__ = build.__doc__
        self.__name__ = build.__name__
        self.__wrapped__ = build

    @overload
    def __call__(self, conn: psycopg.AsyncConnection[Any], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]: ...
    @overload
    def __call__(self, conn: psycopg.Connection[Any], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    def __call__(
        self,
        conn: psycopg.AsyncConnection[Any] | psycopg.Connection[Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Awaitable[T] | T:
        """Run the statement on `conn`, in whatever transaction it is in."""
        call = self._build(*args, **kwargs)
        if isinstance(conn, psycopg.AsyncConnection):
            return _run_async(conn, call)
        return _run(conn, call)


_statements: dict[tuple[str, str], bytes] = {}


def _statement(call: Call[Any], conn: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> bytes:
    """Return the statement's text for a schema, composed once."""
    known = _statements.get((call.text, call.schema))
    if known is None:
        known = sql.SQL(call.text).format(schema=sql.Identifier(call.schema)).as_bytes(conn)
        _statements[call.text, call.schema] = known
    return known


def _run(conn: psycopg.Connection[Any], call: Call[T]) -> T:
    with conn.cursor(row_factory=tuple_row) as cursor:
        try:
            rows = cursor.execute(_statement(call, conn), call.params).fetchall()
        except psycopg.Error as error:
            ours = from_database(error)
            if ours is None:
                raise
            raise ours from None
    return call.read(rows)


async def _run_async(conn: psycopg.AsyncConnection[Any], call: Call[T]) -> T:
    async with conn.cursor(row_factory=tuple_row) as cursor:
        try:
            await cursor.execute(_statement(call, conn), call.params)
            rows = await cursor.fetchall()
        except psycopg.Error as error:
            ours = from_database(error)
            if ours is None:
                raise
            raise ours from None
    return call.read(rows)


def _numbers(values: Iterable[int]) -> str:
    """Return the literal of a bigint[]. psycopg's own takes five times as long, an eighth of a whole drain."""
    return "{" + ",".join(map(str, values)) + "}"


def _texts(values: Iterable[Any]) -> str:
    """Return the literal of an array of texts, or of whatever the database reads from text; None is null."""
    quoted = ("NULL" if v is None else '"' + str(v).replace("\\", "\\\\").replace('"', '\\"') + '"' for v in values)
    return "{" + ",".join(quoted) + "}"


def _optional(values: Sequence[Any], default: Any = None) -> str | None:
    """Return the literal, or None when all have the value that the database takes by itself."""
    return None if all(v == default for v in values) else _texts(values)


def _claimed(rows: list[Row]) -> list[Claimed]:
    return [
        Claimed(
            id_,
            class_,
            kind,
            version,
            json_payload.decode(payload),
            attempt,
            max_attempts,
            token,
            until,
            correlation_id,
            actor_id,
            tenant,
            trace and json_payload.decode(trace),
            state and json_payload.decode(state),
            enqueued_at,
            due_at,
            suspect,
        )
        for (
            id_,
            class_,
            kind,
            version,
            payload,
            attempt,
            max_attempts,
            token,
            until,
            correlation_id,
            actor_id,
            tenant,
            trace,
            state,
            enqueued_at,
            due_at,
            suspect,
        ) in rows
    ]


def _one(rows: list[Row]) -> Any:
    return rows[0][0]


def _nothing(_rows: list[Row]) -> None:
    return None


def _text(value: str | None, field: str) -> str | None:
    return None if value is None else json_payload.check_text(value, field=field)


def _trace(value: Mapping[str, str] | None, field: str = "trace_context") -> str | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{field}: must be a mapping of text to text, not {type(value).__name__}")
    return json_payload.encode(dict(value), field=field)


def _aware(value: datetime | None, field: str) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        msg = f"{field}: must be a datetime, not {type(value).__name__}; add a timedelta to datetime.now(timezone.utc)"
        raise InvalidInput(msg)
    if value.tzinfo is None:
        msg = f"{field}: a datetime without a time zone; pass an aware one, such as datetime.now(timezone.utc)"
        raise InvalidInput(msg)
    return value


_INTEGER = 2**31  # PostgreSQL's integer ends below it; what a field may be within that, the database says


def _whole(value: int | None, field: str) -> int | None:
    if value is None or (type(value) is int and -_INTEGER <= value < _INTEGER):
        return value
    raise InvalidInput(f"{field}: must be a whole number of at most 32 bits, not {type(value).__name__} {value!r:.30}")


# --- producers ---


@Verb
def enqueue(
    class_: str,
    kind: str,
    payload: Any,
    *,
    version: int = 1,
    key: str | None = None,
    run_after: datetime | None = None,
    priority: int = 0,
    max_attempts: int | None = None,
    tenant: str | None = None,
    concurrency_key: str | None = None,
    correlation_id: str | None = None,
    actor_id: str | None = None,
    trace_context: Mapping[str, str] | None = None,
    schema: str = DEFAULT_SCHEMA,
) -> Call[Enqueued]:
    """Enqueue one job in the connection's transaction: the job exists iff that commits.

    `payload` (at most 262,144 bytes as JSON) should be a reference and `version` its schema's version. `key` makes the
    call idempotent within its kind. `priority` -100…100, higher first. Raises UnknownClass, InvalidInput (naming the
    field) or KeyConflict (the key exists with another payload).
    """
    return Call(
        "SELECT id, created FROM {schema}.enqueue(%s,%s,%s::jsonb,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s::jsonb)",
        (
            _text(class_, "class"),
            _text(kind, "kind"),
            json_payload.encode(payload),
            _whole(version, "version"),
            _text(key, "key"),
            _aware(run_after, "run_after"),
            _whole(priority, "priority"),
            _whole(max_attempts, "max_attempts"),
            _text(tenant, "tenant"),
            _text(concurrency_key, "concurrency_key"),
            _text(correlation_id, "correlation_id"),
            _text(actor_id, "actor_id"),
            _trace(trace_context),
        ),
        lambda rows: Enqueued(*rows[0]),
        schema,
    )


_MANY_MARKS = (
    "%s::text[],%s::text[],%s::jsonb[],%s::int[],%s::text[],%s::timestamptz[],%s::int[],%s::int[],"
    "%s::text[],%s::text[],%s::text[],%s::text[],%s::jsonb[]"
)


@Verb
def enqueue_many(jobs: Sequence[NewJob], *, schema: str = DEFAULT_SCHEMA) -> Call[list[Enqueued]]:
    """Enqueue up to 10,000 jobs in one statement; the answers are in the order of `jobs`.

    All or none: the first bad job raises, naming its place (`jobs[3].kind: …`). Two calls that name the same keys wait
    for each other; across several calls in one transaction a deadlock is possible, and retryable.
    """
    columns = [
        _texts([_text(j.class_, f"jobs[{i}].class") for i, j in enumerate(jobs)]),
        _texts([_text(j.kind, f"jobs[{i}].kind") for i, j in enumerate(jobs)]),
        _texts([json_payload.encode(j.payload, field=f"jobs[{i}].payload") for i, j in enumerate(jobs)]),
        _optional([_whole(j.version, f"jobs[{i}].version") for i, j in enumerate(jobs)], 1),
        _optional([_text(j.key, f"jobs[{i}].key") for i, j in enumerate(jobs)]),
        _optional([_aware(j.run_after, f"jobs[{i}].run_after") for i, j in enumerate(jobs)]),
        _optional([_whole(j.priority, f"jobs[{i}].priority") for i, j in enumerate(jobs)], 0),
        _optional([_whole(j.max_attempts, f"jobs[{i}].max_attempts") for i, j in enumerate(jobs)]),
        _optional([_text(j.tenant, f"jobs[{i}].tenant") for i, j in enumerate(jobs)]),
        _optional([_text(j.concurrency_key, f"jobs[{i}].concurrency_key") for i, j in enumerate(jobs)]),
        _optional([_text(j.correlation_id, f"jobs[{i}].correlation_id") for i, j in enumerate(jobs)]),
        _optional([_text(j.actor_id, f"jobs[{i}].actor_id") for i, j in enumerate(jobs)]),
        _optional([_trace(j.trace_context, f"jobs[{i}].trace_context") for i, j in enumerate(jobs)]),
    ]
    return Call(
        "SELECT id, created FROM {schema}.enqueue_many(" + _MANY_MARKS + ") ORDER BY position",  # noqa: S608 - a constant
        columns,
        lambda rows: [Enqueued(*row) for row in rows],
        schema,
    )


# --- workers ---


@Verb
def register_worker(
    name: str,
    class_: str,
    kinds: Sequence[tuple[str, int]],
    *,
    slots: int,
    info: Mapping[str, Any] | None = None,
    schema: str = DEFAULT_SCHEMA,
) -> Call[Registered]:
    """Register one worker process, or ask again for one not admitted yet. `name` is unique a process incarnation.

    `kinds` may be empty here and told later with `understand`, when the app is imported after admission.
    """
    return Call(
        "SELECT worker, admitted, lease, settings"
        " FROM {schema}.register_worker(%s,%s,%s::text[],%s::int[],%s,%s::jsonb)",
        (
            name,
            class_,
            [k for k, _ in kinds],
            [v for _, v in kinds],
            slots,
            json_payload.encode(dict(info or {}), field="info"),
        ),
        lambda rows: Registered(*rows[0]),
        schema,
    )


@Verb
def understand(worker: int, kinds: Sequence[tuple[str, int]], *, schema: str = DEFAULT_SCHEMA) -> Call[None]:
    """Tell which kinds and versions a registered worker runs. Raises WorkerRefused when it is not registered."""
    return Call(
        "SELECT {schema}.understand(%s,%s::text[],%s::int[])",
        (worker, [k for k, _ in kinds], [v for _, v in kinds]),
        _nothing,
        schema,
    )


@Verb
def claim(
    class_: str,
    worker: int,
    request: int,
    *,
    max_jobs: int,
    kinds: Sequence[tuple[str, int]] | None = None,
    lease: timedelta | None = None,
    floor: datetime | None = None,
    schema: str = DEFAULT_SCHEMA,
) -> Call[list[Claimed]]:
    """Claim up to `max_jobs` (1…10,000) due jobs under a lease (the class's when None), spending one attempt each.

    `request` grows with every call of this worker; `recover` fences by it. `kinds` None means those it registered.
    `floor` skips rows due before it: the lowest `due_at` of the last full batch, None for a full look. A suspect comes
    alone: run it in a process of its own. Raises WorkerRefused when the worker is unknown, retired or not admitted.
    """
    names = None if kinds is None else [k for k, _ in kinds]
    versions = None if kinds is None else [v for _, v in kinds]
    return Call(
        "SELECT id, job_class, kind, version, payload::text, attempt, max_attempts, token, leased_until,"
        " correlation_id, actor_id, tenant, trace_context::text, checkpoint::text, enqueued_at, due_at, suspect"
        " FROM {schema}.claim(%s,%s,%s,%s,%s::interval,%s::text[],%s::int[],%s::timestamptz)",
        (class_, worker, request, max_jobs, lease, names, versions, floor),
        _claimed,
        schema,
    )


@Verb
def recover(worker: int, request: int, known: Sequence[int], *, schema: str = DEFAULT_SCHEMA) -> Call[int]:
    """After a lost connection: fence claims up to `request`, give back (refunded) leases with tokens not `known`."""
    return Call("SELECT {schema}.recover(%s,%s,%s::bigint[])", (worker, request, _numbers(known)), _one, schema)


@Verb
def extend(
    worker: int,
    ids: Sequence[int],
    tokens: Sequence[int],
    *,
    lease: timedelta | None = None,
    schema: str = DEFAULT_SCHEMA,
) -> Call[list[Extended]]:
    """Renew leases (for `lease`, or the class's) from now on; each row answers for itself."""
    return Call(
        "SELECT id, leased_until, cancel, result FROM {schema}.extend(%s,%s::bigint[],%s::bigint[],%s::interval)",
        (worker, _numbers(ids), _numbers(tokens), lease),
        lambda rows: [Extended._make(row) for row in rows],
        schema,
    )


@Verb
def heartbeat(worker: int, *, schema: str = DEFAULT_SCHEMA) -> Call[Heartbeat]:
    """Say that the worker lives; learn its state, whether its class is paused, and which of its jobs should stop."""
    return Call(
        "SELECT state, paused, cancel FROM {schema}.heartbeat(%s)",
        (worker,),
        lambda rows: Heartbeat(*rows[0]),
        schema,
    )


@Verb
def complete(id_: int, token: int, *, schema: str = DEFAULT_SCHEMA) -> Call[str]:
    """Acknowledge one job: 'done', or 'already' when this token did it before. Raises StaleLease."""
    return Call("SELECT {schema}.complete(%s,%s)", (id_, token), _one, schema)


@Verb
def complete_many(ids: Sequence[int], tokens: Sequence[int], *, schema: str = DEFAULT_SCHEMA) -> Call[list[Acked]]:
    """Acknowledge a batch; each row answers done, already or stale, and a stale one affects no other."""
    return Call(
        "SELECT id, result FROM {schema}.complete_many(%s::bigint[],%s::bigint[])",
        (_numbers(ids), _numbers(tokens)),
        lambda rows: [Acked._make(row) for row in rows],
        schema,
    )


@Verb
def fail(
    id_: int,
    token: int,
    error: str,
    *,
    outcome: str = "retry",
    retry_after: timedelta | None = None,
    reason: str | None = None,
    schema: str = DEFAULT_SCHEMA,
) -> Call[Failed]:
    """End one attempt without success: `outcome` retry (after `retry_after`, or the backoff), dead or cancelled."""
    return Call(
        "SELECT %s::bigint, result, run_after FROM {schema}.fail(%s,%s,%s,%s,%s::interval,%s)",
        (
            id_,
            id_,
            token,
            json_payload.sanitise(error),
            outcome,
            retry_after,
            reason and json_payload.sanitise(reason),
        ),
        lambda rows: Failed(*rows[0]),
        schema,
    )


@Verb
def fail_many(
    ids: Sequence[int],
    tokens: Sequence[int],
    errors: Sequence[str],
    outcomes: Sequence[str],
    retry_afters: Sequence[timedelta | None],
    reasons: Sequence[str | None],
    *,
    schema: str = DEFAULT_SCHEMA,
) -> Call[list[Failed]]:
    """End a batch of attempts without success; the arrays are parallel, each row answers for itself."""
    return Call(
        "SELECT id, result, run_after FROM {schema}.fail_many("
        "%s::bigint[],%s::bigint[],%s::text[],%s::text[],%s::interval[],%s::text[])",
        (
            _numbers(ids),
            _numbers(tokens),
            [json_payload.sanitise(e) for e in errors],
            list(outcomes),
            list(retry_afters),
            [r and json_payload.sanitise(r) for r in reasons],
        ),
        lambda rows: [Failed._make(row) for row in rows],
        schema,
    )


@Verb
def release(id_: int, token: int, *, reason: str, schema: str = DEFAULT_SCHEMA) -> Call[str]:
    """Give one job back, its attempt refunded (up to ten times a budget; then 'spent' or 'dead'). Raises StaleLease."""
    return Call("SELECT {schema}.release(%s,%s,%s)", (id_, token, json_payload.sanitise(reason)), _one, schema)


@Verb
def release_many(
    ids: Sequence[int], tokens: Sequence[int], *, reason: str, schema: str = DEFAULT_SCHEMA
) -> Call[list[Acked]]:
    """Give a batch back; each row answers released, spent, dead, cancelled, already or stale."""
    return Call(
        "SELECT id, result FROM {schema}.release_many(%s::bigint[],%s::bigint[],%s)",
        (_numbers(ids), _numbers(tokens), json_payload.sanitise(reason)),
        lambda rows: [Acked._make(row) for row in rows],
        schema,
    )


@Verb
def snooze(id_: int, token: int, until: datetime, *, schema: str = DEFAULT_SCHEMA) -> Call[str]:
    """Put one job off until a moment, its attempt refunded as by release. Raises StaleLease."""
    return Call("SELECT {schema}.snooze(%s,%s,%s)", (id_, token, _aware(until, "until")), _one, schema)


@Verb
def snooze_many(
    ids: Sequence[int], tokens: Sequence[int], untils: Sequence[datetime], *, schema: str = DEFAULT_SCHEMA
) -> Call[list[Acked]]:
    """Put a batch off; each row answers snoozed, spent, dead, cancelled, already or stale."""
    return Call(
        "SELECT id, result FROM {schema}.snooze_many(%s::bigint[],%s::bigint[],%s::timestamptz[])",
        (_numbers(ids), _numbers(tokens), [_aware(u, "until") for u in untils]),
        lambda rows: [Acked._make(row) for row in rows],
        schema,
    )


@Verb
def checkpoint(id_: int, token: int, state: Any, *, schema: str = DEFAULT_SCHEMA) -> Call[None]:
    """Store what the next attempt should know (at most 262,144 bytes as JSON). Raises StaleLease."""
    return Call(
        "SELECT {schema}.checkpoint(%s,%s,%s::jsonb)",
        (id_, token, json_payload.encode(state, field="state")),
        _nothing,
        schema,
    )


@Verb
def effect(id_: int, token: int, key: str, *, schema: str = DEFAULT_SCHEMA) -> Call[bool]:
    """Record an effect key in the caller's transaction, under the current lease: True the first time, ever.

    Exact for effects in this database and this transaction only. Raises StaleLease: then roll back.
    """
    return Call("SELECT {schema}.effect(%s,%s,%s)", (id_, token, _text(key, "key")), _one, schema)


@Verb
def sleeping(worker: int, class_: str, asleep: bool, *, schema: str = DEFAULT_SCHEMA) -> Call[None]:  # noqa: FBT001
    """Raise or lower the flag that asks enqueues for a NOTIFY. Set it, commit, poll once more, then sleep."""
    return Call("SELECT {schema}.sleeping(%s,%s,%s)", (worker, class_, asleep), _nothing, schema)


@Verb
def forget_worker(worker: int, *, schema: str = DEFAULT_SCHEMA) -> Call[int]:
    """End a worker; what it still holds counts as lost. Returns how many jobs that were (0 after a clean drain)."""
    return Call("SELECT {schema}.forget_worker(%s)", (worker,), _one, schema)


# --- upkeep ---


@Verb
def sweep(max_jobs: int = 1000, *, schema: str = DEFAULT_SCHEMA) -> Call[Swept]:
    """Take over expired leases, at most `max_jobs`. Any worker may call it; one at a time does it."""
    return Call(
        "SELECT requeued, dead, cancelled, unparked FROM {schema}.sweep(%s)",
        (max_jobs,),
        lambda rows: Swept(*rows[0]),
        schema,
    )


@Verb
def maintain(*, schema: str = DEFAULT_SCHEMA) -> Call[list[Maintained]]:
    """Add partitions ahead, remove what is past its retention, in bounded pieces. Returns what was done."""
    return Call(
        'SELECT action, detail, "rows" FROM {schema}.maintain()',
        (),
        lambda rows: [Maintained(*row) for row in rows],
        schema,
    )


# --- support ---


@Verb
def cancel(id_: int, *, schema: str = DEFAULT_SCHEMA) -> Call[str]:
    """Cancel a job: 'cancelled', 'requested' (it runs; its worker is told), or 'finished'. Raises UnknownJob."""
    return Call("SELECT {schema}.cancel(%s)", (id_,), _one, schema)


@Verb
def redrive(
    ids: Sequence[int], *, spread: timedelta = timedelta(0), force: bool = False, schema: str = DEFAULT_SCHEMA
) -> Call[list[Acked]]:
    """Bring ended jobs back with a fresh budget, due within `spread`; rows answer redriven or skipped: why."""
    return Call(
        "SELECT id, result FROM {schema}.redrive(%s::bigint[],%s::interval,%s)",
        (_numbers(ids), spread, force),
        lambda rows: [Acked._make(row) for row in rows],
        schema,
    )


@Verb
def redrive_where(
    *,
    class_: str | None = None,
    kind: str | None = None,
    status: str = "dead",
    error_like: str | None = None,
    finished_after: datetime | None = None,
    finished_before: datetime | None = None,
    max_jobs: int = 1000,
    spread: timedelta = timedelta(0),
    force: bool = False,
    schema: str = DEFAULT_SCHEMA,
) -> Call[int]:
    """Redrive by filter, oldest first, at most `max_jobs` (1…100,000); `error_like` is an SQL LIKE pattern."""
    return Call(
        "SELECT {schema}.redrive_where(%s,%s,%s,%s,%s,%s,%s,%s::interval,%s)",
        (
            class_,
            kind,
            status,
            error_like,
            _aware(finished_after, "finished_after"),
            _aware(finished_before, "finished_before"),
            max_jobs,
            spread,
            force,
        ),
        _one,
        schema,
    )


@Verb
def redact(ids: Sequence[int], *, schema: str = DEFAULT_SCHEMA) -> Call[int]:
    """Remove payload, trace context, checkpoint and errors of ended jobs, for good. NotRedrivable on live ones."""
    return Call("SELECT {schema}.redact(%s::bigint[])", (_numbers(ids),), _one, schema)


# --- operators ---


@Verb
def snapshot(*, tick: float = 5.0, schema: str = DEFAULT_SCHEMA) -> Call[dict[str, Any]]:
    """All facts of all classes, as the JSON object that `jobqueue.signals` decodes.

    `tick`: seconds (0.1 to 10) between two of the caller's looks, over which it is told what arrived.
    """
    return Call("SELECT {schema}.snapshot(%s::float8)", (tick,), _one, schema)


@Verb
def lead(holder: str, *, schema: str = DEFAULT_SCHEMA) -> Call[int]:
    """Begin a leadership of this database; returns its epoch. Older epochs are refused from now on."""
    return Call("SELECT {schema}.lead(%s)", (holder,), _one, schema)


@Verb
def set_class(epoch: int | None, name: str, settings: Mapping[str, Any], *, schema: str = DEFAULT_SCHEMA) -> Call[None]:
    """Register a class or change the settings named. `epoch` None is an administrator's word. Raises StaleEpoch."""
    return Call(
        "SELECT {schema}.set_class(%s,%s,%s::jsonb)",
        (epoch, _text(name, "name"), json_payload.encode(dict(settings), field="settings")),
        _nothing,
        schema,
    )


@Verb
def set_downstream(epoch: int | None, name: str, unit_limit: int, *, schema: str = DEFAULT_SCHEMA) -> Call[None]:
    """Register a downstream or change its limit (units ≥ 0). A lower one takes effect as running jobs end."""
    return Call("SELECT {schema}.set_downstream(%s,%s,%s)", (epoch, _text(name, "name"), unit_limit), _nothing, schema)


@Verb
def set_paused(epoch: int | None, class_: str, paused: bool, *, schema: str = DEFAULT_SCHEMA) -> Call[None]:  # noqa: FBT001
    """Stop or resume claims of a class; what runs, runs on."""
    return Call("SELECT {schema}.set_paused(%s,%s,%s)", (epoch, class_, paused), _nothing, schema)


@Verb
def remember(
    epoch: int | None, class_: str, memory: Mapping[str, Any] | None, *, schema: str = DEFAULT_SCHEMA
) -> Call[None]:
    """Keep what a planner must know of a class after a restart (16 KiB); None forgets it. `snapshot` gives it back."""
    encoded = None if memory is None else json_payload.encode(dict(memory), field="memory", max_bytes=MAX_MEMORY)
    return Call("SELECT {schema}.remember(%s,%s,%s::jsonb)", (epoch, _text(class_, "class"), encoded), _nothing, schema)


@Verb
def retire_worker(epoch: int | None, workers: Sequence[int], *, schema: str = DEFAULT_SCHEMA) -> Call[dict[int, int]]:
    """Fence workers for scale-in; returns jobs in flight by worker, which can only fall from now on."""
    return Call(
        "SELECT worker, in_flight FROM {schema}.retire_worker(%s,%s::bigint[])",
        (epoch, _numbers(workers)),
        lambda rows: {row[0]: row[1] for row in rows},
        schema,
    )


@Verb
def unretire_worker(epoch: int | None, workers: Sequence[int], *, schema: str = DEFAULT_SCHEMA) -> Call[list[int]]:
    """Take retired workers back; returns those that were."""
    return Call(
        "SELECT * FROM {schema}.unretire_worker(%s,%s::bigint[])",
        (epoch, _numbers(workers)),
        lambda rows: [r[0] for r in rows],
        schema,
    )
