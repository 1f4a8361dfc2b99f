"""What the operator writes into `status`: what was observed of which generation, in numbers and conditions.

A number that could not be read is absent, never 0.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from jobqueue_operator.resources.model import Resource, map_by

Count = Annotated[int | None, Field(ge=0)]


class Condition(Resource):
    """One thing that holds or does not, as every Kubernetes API says it."""

    type: Annotated[str, Field(max_length=316, description="What it is about, such as Ready.")]
    status: Annotated[Literal["True", "False", "Unknown"], Field(description="Whether it holds.")]
    observed_generation: Annotated[
        int | None, Field(ge=0, description="The generation of the spec that it was judged by.")
    ] = None
    last_transition_time: Annotated[
        str,
        Field(
            max_length=64,
            description="When status changed last.",
            json_schema_extra={"format": "date-time"},
        ),
    ]
    reason: Annotated[
        str,
        Field(
            min_length=1,
            max_length=1024,
            pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            description="Why, in one stable word.",
        ),
    ]
    message: Annotated[str, Field(max_length=32_768, description="Why, for people, with the remedy.")]


Conditions = Annotated[
    tuple[Condition, ...],
    Field(max_length=50, description="What holds and what does not.", json_schema_extra=map_by("type")),
]
ObservedGeneration = Annotated[
    int | None, Field(ge=0, description="The generation of the spec that this status speaks of.")
]
Reason = Annotated[str | None, Field(max_length=1024, description="What decides the number of workers.")]
Age = Annotated[str | None, Field(max_length=40, description="How long the oldest due message has waited.")]


class Load(Resource):
    """Jobs and workers: of a class, or summed over all."""

    replicas: Annotated[Count, Field(description="Workers that run.")] = None
    ready_jobs: Annotated[Count, Field(description="Jobs that are due and wait.")] = None
    in_flight_jobs: Annotated[Count, Field(description="Jobs that run.")] = None
    dead_jobs: Annotated[Count, Field(description="Jobs that were given up and can be redriven.")] = None
    oldest_message_age: Age = None
    reason: Reason = None


class ClassStatus(Load):
    """How one class is doing."""

    name: Annotated[str, Field(max_length=63, description="Name of the class.")]
    desired_replicas: Annotated[Count, Field(description="Workers that should run.")] = None
    scheduled_jobs: Annotated[Count, Field(description="Jobs that are due later.")] = None
    message: Annotated[str | None, Field(max_length=32_768, description="The decision, and what would change it.")] = (
        None
    )


class JobQueueStatus(Load):
    """How a JobQueue is doing: sums over its classes, and the worst of them."""

    observed_generation: ObservedGeneration = None
    conditions: Conditions = ()
    classes: Annotated[
        tuple[ClassStatus, ...],
        Field(
            # More than a spec may have: removed ones stay until their jobs are worked off.
            max_length=200,
            description="The classes, removed ones that still have jobs included.",
            json_schema_extra=map_by("name"),
        ),
    ] = ()


class Allocation(Resource):
    """What one class has of a downstream."""

    job_queue: Annotated[str, Field(max_length=127, description="NAMESPACE/NAME of the JobQueue.")]
    class_: Annotated[str, Field(alias="class", max_length=63, description="Name of the class.")]
    allocated: Annotated[Count, Field(description="Units it may use.")] = None
    asked: Annotated[Count, Field(description="Units it asked for.")] = None
    held_back_by: Annotated[
        tuple[Annotated[str, Field(max_length=200)], ...],
        Field(max_length=50, description="Who has what it did not get, as NAMESPACE/NAME/CLASS, or the limit."),
    ] = ()


class DownstreamStatus(Resource):
    """How much of a downstream is in use, and by whom."""

    observed_generation: ObservedGeneration = None
    conditions: Conditions = ()
    units: Annotated[Count, Field(description="Units it has, less reserve.")] = None
    limit: Annotated[Count, Field(description="Units that may be in use now; an adaptive limit lowers it.")] = None
    in_use: Annotated[Count, Field(description="Units in use.")] = None
    allocations: Annotated[
        tuple[Allocation, ...],
        Field(
            max_length=1000,
            description="What each class has of it.",
            json_schema_extra=map_by("jobQueue", "class"),
        ),
    ] = ()
