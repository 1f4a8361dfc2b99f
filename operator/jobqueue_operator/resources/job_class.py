"""One job class: the pool that runs it, what it promises, and how it fails."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, ConfigDict, Field, model_validator

from jobqueue_operator.resources import cel, durations
from jobqueue_operator.resources.durations import LeaseSpan, Pause, Span, render
from jobqueue_operator.resources.model import Resource
from jobqueue_operator.resources.names import ClassName, Label

REPLICAS_MOST = 1_000
UNITS_MOST = 1_000_000
UNITS_EACH_MOST = 32_767
"""Units of one job, or of one worker."""
POD_TEMPLATE_BYTES = 65_536
CRON_FIELDS = 5


class Target(Resource):
    """What the class promises."""

    oldest_message_age: Annotated[
        Span, Field(description="No job waits longer than this once it is due.", examples=["30s"])
    ] = timedelta(seconds=60)


Behavior = Literal["Default", "Calm"]


class Fallback(Resource):
    """More workers while the queue cannot be read. Without it, they stay as they are."""

    after: Annotated[Span, Field(description="Blind for this long before it holds.", examples=["5m"])]
    replicas: Annotated[int, Field(ge=1, le=REPLICAS_MOST, description="Workers at least, then; never fewer than run.")]


MAX_BY_DEFAULT = 10


def most(replicas: str) -> str:
    """Return the CEL expression of the most workers, as `Replicas` fills it in."""
    default = f"({replicas}.min > {MAX_BY_DEFAULT} ? {replicas}.min : {MAX_BY_DEFAULT})"
    return f"(has({replicas}.max) ? {replicas}.max : {default})"


def _no_default(schema: dict[str, Any]) -> None:
    # Which default holds depends on another field, which a schema cannot say: to an API server there is none.
    del schema["default"]


class Replicas(Resource):
    """How many workers may run."""

    model_config = ConfigDict(
        json_schema_extra=cel.rules(
            cel.Rule("!has(self.max) || self.min <= self.max", "min is above max; lower min or raise max", "min"),
            cel.Rule(
                f"!has(self.fallback) || self.fallback.replicas <= {most('self')}",
                f"fallback.replicas is above max ({MAX_BY_DEFAULT}, or min, by default); lower it or raise max",
                "fallback.replicas",
            ),
        )
    )

    min: Annotated[int, Field(ge=0, le=REPLICAS_MOST, description="Workers kept even when idle.")] = 1
    max: Annotated[
        int,
        Field(
            ge=1,
            le=REPLICAS_MOST,
            description=f"Workers at most; {MAX_BY_DEFAULT} by default, or min when that is more.",
            json_schema_extra=_no_default,
        ),
    ] = MAX_BY_DEFAULT
    idle_after: Annotated[Pause, Field(description="Idle for this long before going to zero.")] = timedelta(minutes=2)
    pin: Annotated[
        int | None,
        Field(
            ge=0,
            le=REPLICAS_MOST,
            description="Exactly this many, whatever the demand; the downstream still limits it.",
        ),
    ] = None
    behavior: Annotated[
        Behavior, Field(description="Calm waits longer before workers go: fewer changes, a few more worker-hours.")
    ] = "Default"
    fallback: Annotated[Fallback | None, Field(description="What to do while the queue cannot be read.")] = None

    @model_validator(mode="before")
    @classmethod
    def _max_follows_min(cls, value: Any) -> Any:
        least = value.get("min") if isinstance(value, dict) else None
        if isinstance(least, int) and "max" not in value and least > MAX_BY_DEFAULT:
            return {**value, "max": least}
        return value

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}; lower min or raise max")
        if self.fallback is not None and self.fallback.replicas > self.max:
            raise ValueError(
                f"fallback.replicas {self.fallback.replicas} is above max {self.max}; lower it or raise max"
            )
        return self


class Lease(Resource):
    """How long a claimed job belongs to its worker without a sign of life."""

    duration: Annotated[
        LeaseSpan, Field(description="A lost worker's jobs are run again after this.", examples=["60s"])
    ] = timedelta(seconds=60)
    heartbeat: Annotated[
        Span | None,
        Field(description="Time between renewals; a quarter of the lease, at most 5s, by default."),
    ] = None


class Backoff(Resource):
    """The wait before a retry: a random part of initial * factor^(attempt - 1), at most max."""

    model_config = ConfigDict(
        json_schema_extra=cel.rules(
            cel.Rule(
                durations.at_most("self.initial", "self.max"),
                "initial is above max; lower initial or raise max",
                "initial",
            )
        )
    )

    initial: Annotated[Span, Field(description="The longest wait before the second attempt.")] = timedelta(seconds=2)
    factor: Annotated[float, Field(ge=1, le=100, allow_inf_nan=False, description="Growth per attempt.")] = 2.0
    max: Annotated[Span, Field(description="The longest wait before any attempt.")] = timedelta(minutes=10)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.initial > self.max:
            raise ValueError(
                f"initial {render(self.initial)} is above max {render(self.max)}; lower initial or raise max"
            )
        return self


class Retry(Resource):
    """When a job is tried again, and when it is given up."""

    max_attempts: Annotated[int, Field(ge=1, le=1000, description="Attempts before a job is dead.")] = 10
    backoff: Annotated[Backoff, Field(description="The wait between attempts.")] = Backoff()


class CapacityRef(Resource):
    """Names a DownstreamCapacity, which may live in another namespace that allows it."""

    name: Annotated[Label, Field(description="Name of the DownstreamCapacity.", examples=["orders-db"])]
    namespace: Annotated[Label | None, Field(description="Its namespace; the JobQueue's by default.")] = None


class Capacity(Resource):
    """What this class takes of a downstream, and its share when that is short."""

    ref: Annotated[CapacityRef, Field(description="The downstream that the jobs lean on.")]
    units_per_job: Annotated[int, Field(ge=1, le=UNITS_EACH_MOST, description="Units a running job takes.")] = 1
    units_per_pod: Annotated[int, Field(ge=0, le=UNITS_EACH_MOST, description="Units a worker takes, idle or not.")] = 0
    min_units: Annotated[int, Field(ge=0, le=UNITS_MOST, description="Units reserved for this class.")] = 0
    weight: Annotated[int, Field(ge=1, le=1000, description="Share of what is left, against others.")] = 1
    priority: Annotated[int, Field(ge=0, le=1000, description="Higher tiers are served first.")] = 0

    def charge(self, jobs: int) -> int:
        """Return the units that one worker takes with so many jobs."""
        return self.units_per_pod + self.units_per_job * jobs


class Drain(Resource):
    """How a worker ends."""

    timeout: Annotated[
        Pause | None,
        Field(description="Time for running jobs to finish; the class's timeout + 5s by default."),
    ] = None
    max_grace: Annotated[
        Span, Field(description="The longest grace period allowed; cluster autoscalers wait 600s by default.")
    ] = timedelta(minutes=10)


_NO_CRON = 'is not a cron expression of five fields; write e.g. "0 8 * * 1-5"'
CRON_PATTERN = rf"^\s*\S+(\s+\S+){{{CRON_FIELDS - 1}}}\s*$"
"""As much of its syntax as a schema can say."""


def _cron(text: str) -> str:
    if len(text.split()) != CRON_FIELDS:
        raise ValueError(_NO_CRON)
    try:
        # Any start will do: whether the expression can be read is all that matters here.
        CronSim(text, datetime(2026, 1, 1, tzinfo=UTC))
    except (CronSimError, ValueError, OverflowError) as error:
        raise ValueError(f'is not a cron expression ({error}); write e.g. "0 8 * * 1-5"') from error
    return text


def _time_zone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError("is not a time zone; write e.g. Europe/Oslo or UTC") from error
    return text


class ScheduledMinimum(Resource):
    """More workers at known times: from each firing of `cron`, for `for`, at least `min`."""

    cron: Annotated[
        str,
        Field(
            max_length=200,
            description="When it starts.",
            examples=['"0 8 * * 1-5"'],
            json_schema_extra={"pattern": CRON_PATTERN} | cel.form(CRON_PATTERN, _NO_CRON),
        ),
        AfterValidator(_cron),
    ]
    time_zone: Annotated[
        str, Field(max_length=64, description="IANA time zone of cron."), AfterValidator(_time_zone)
    ] = "UTC"
    for_: Annotated[Span, Field(alias="for", description="How long it lasts.", examples=["2h"])]
    min: Annotated[int, Field(ge=0, le=REPLICAS_MOST, description="Workers at least, meanwhile.", examples=["4"])]


class Tenancy(Resource):
    """Fairness between tenants of one class."""

    fair: Annotated[bool, Field(description="Take turns between tenants instead of strict age.")] = False
    limit_per_tenant: Annotated[
        int | None, Field(ge=1, le=UNITS_MOST, description="Jobs of one tenant that may run at once.")
    ] = None


def _pod_template(value: dict[str, Any]) -> dict[str, Any]:
    try:
        size = len(json.dumps(value, allow_nan=False).encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError("holds something that JSON cannot; write plain text, numbers, lists, mappings") from error
    if size > POD_TEMPLATE_BYTES:
        raise ValueError(f"has {size} bytes; use at most {POD_TEMPLATE_BYTES}")
    return value


class ClassSpec(Resource):
    """A class of jobs and the pool that works on it: a bulkhead with its own promise, limits and failures."""

    model_config = ConfigDict(
        json_schema_extra=cel.rules(
            cel.Rule(
                f"!has(self.schedule) || self.schedule.all(entry, entry.min <= {most('self.replicas')})",
                "an entry's min is above replicas.max; lower it or raise max",
                "schedule",
            )
        )
    )

    name: Annotated[ClassName, Field(description="What producers name in `enqueue`.", examples=["email"])]
    concurrency: Annotated[int, Field(ge=1, le=1000, description="Jobs one worker runs at once.")] = 10
    timeout: Annotated[Span, Field(description="The longest that a handler of this class may run.", examples=["30s"])]
    target: Annotated[Target, Field(description="What the class promises.")] = Target()
    replicas: Annotated[Replicas, Field(description="How many workers may run.")] = Replicas()
    lease: Annotated[Lease, Field(description="How long a claim holds.")] = Lease()
    retry: Annotated[Retry, Field(description="When to try again, when to give up.")] = Retry()
    capacity: Annotated[Capacity | None, Field(description="The downstream, if it needs protection.")] = None
    drain: Annotated[Drain, Field(description="How a worker ends.")] = Drain()
    schedule: Annotated[
        tuple[ScheduledMinimum, ...],
        Field(max_length=50, strict=False, description="More workers at known times."),
    ] = ()
    paused: Annotated[bool, Field(description="Claims stop; workers and jobs stay.")] = False
    tenancy: Annotated[Tenancy, Field(description="Fairness between tenants.")] = Tenancy()
    key_limit: Annotated[
        int, Field(ge=1, le=UNITS_MOST, description="Jobs of one concurrency key that may run at once.")
    ] = 1
    pod_template: Annotated[
        dict[str, Any],
        Field(description="Merged over the worker's pod template, containers by name."),
        AfterValidator(_pod_template),
    ] = {}  # noqa: RUF012 - pydantic copies it, and the model is frozen

    @model_validator(mode="after")
    def _schedule_fits(self) -> Self:
        for entry in self.schedule:
            if entry.min > self.replicas.max:
                raise ValueError(
                    f"schedule: min {entry.min} is above replicas.max {self.replicas.max}; lower it or raise max"
                )
        return self
