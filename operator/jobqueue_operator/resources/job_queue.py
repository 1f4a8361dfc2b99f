"""JobQueue: one application's classes on one database."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from jobqueue_operator.resources import cel
from jobqueue_operator.resources.durations import Retention as Kept
from jobqueue_operator.resources.durations import Span
from jobqueue_operator.resources.job_class import ClassSpec
from jobqueue_operator.resources.model import API_VERSION, Metadata, NameRef, Resource, map_by

APP_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$"
SCHEMA_PATTERN = r"^[a-z_][a-z0-9_]*$"
IMAGE_PATTERN = r"^[!-~]+$"


class Database(Resource):
    """Where the queue lives in a cluster: Secrets with host, port, dbname, user, password, sslmode, sslrootcert.

    On one machine (`jobqueue up`) it is not used: the DSN is an option there.
    """

    worker_secret_ref: Annotated[NameRef, Field(description="Login of the workers.")]
    operator_secret_ref: Annotated[NameRef, Field(description="Login of the operator.")]
    listen_secret_ref: Annotated[NameRef | None, Field(description="A login past PgBouncer, for LISTEN alone.")] = None
    schema_: Annotated[
        str,
        Field(
            alias="schema",
            pattern=SCHEMA_PATTERN,
            max_length=63,
            description="Schema of the queue.",
            json_schema_extra=cel.form(
                SCHEMA_PATTERN, "is not a schema's name; use lower-case letters, digits and '_', e.g. jobqueue"
            ),
        ),
    ] = "jobqueue"


class Retention(Resource):
    """How long finished jobs stay readable."""

    done: Annotated[Kept, Field(description="Done and cancelled jobs.")] = timedelta(days=7)
    dead: Annotated[Kept, Field(description="Dead jobs, which can still be redriven.")] = timedelta(days=30)


class RabbitMQ(Resource):
    """The broker that wakes workers. Losing every message of it costs latency, never work."""

    secret_ref: Annotated[NameRef, Field(description="Secret with the broker's login.")]


class Wakeup(Resource):
    """How a sleeping worker hears of a new job. Polling goes on underneath, always."""

    model_config = ConfigDict(
        json_schema_extra=cel.rules(
            cel.Rule(
                'self.type != "RabbitMQ" || has(self.rabbitmq)',
                "type RabbitMQ needs rabbitmq.secretRef; add it, or use type Notify",
                "type",
            ),
            cel.Rule(
                'self.type == "RabbitMQ" || !has(self.rabbitmq)',
                "only type RabbitMQ uses rabbitmq; leave it out, or use type RabbitMQ",
                "rabbitmq",
            ),
        )
    )

    type: Annotated[Literal["Notify", "Polling", "RabbitMQ"], Field(description="What wakes.")] = "Notify"
    poll_interval: Annotated[Span, Field(description="The longest sleep between two looks.")] = timedelta(seconds=2)
    rabbitmq: Annotated[
        RabbitMQ | None, Field(alias="rabbitmq", description="Needed by type RabbitMQ, for nothing else.")
    ] = None

    @model_validator(mode="after")
    def _broker_with_its_type(self) -> Self:
        if self.type == "RabbitMQ" and self.rabbitmq is None:
            raise ValueError("type RabbitMQ needs rabbitmq.secretRef; add it, or use type Notify")
        if self.type != "RabbitMQ" and self.rabbitmq is not None:
            raise ValueError(f"type {self.type} does not use rabbitmq; leave it out, or use type RabbitMQ")
        return self


class JobQueueSpec(Resource):
    """What to run, on which database, in which classes."""

    database: Annotated[Database | None, Field(description="Where the queue lives; not needed locally.")] = None
    retention: Annotated[Retention, Field(description="How long finished jobs stay readable.")] = Retention()
    wakeup: Annotated[Wakeup, Field(description="How a sleeping worker hears of a new job.")] = Wakeup()
    image: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=500,
            pattern=IMAGE_PATTERN,
            description="Image of the workers; not needed locally.",
            json_schema_extra=cel.form(
                IMAGE_PATTERN, "is not an image; write e.g. registry.example/shop-worker:1.4.2, without spaces"
            ),
        ),
    ] = None
    app: Annotated[
        str,
        Field(
            pattern=APP_PATTERN,
            max_length=250,
            description="Where the handlers are, MODULE:ATTRIBUTE.",
            examples=["shop.jobs:app"],
            json_schema_extra=cel.form(APP_PATTERN, "is not MODULE:ATTRIBUTE; write e.g. shop.jobs:app"),
        ),
    ]
    classes: Annotated[
        tuple[ClassSpec, ...],
        Field(
            min_length=1,
            max_length=50,
            strict=False,
            description="The classes, each with its own name.",
            examples=["- name: email"],
            json_schema_extra=map_by("name"),
        ),
    ]

    @model_validator(mode="after")
    def _each_class_once(self) -> Self:
        twice = [name for name, count in Counter(c.name for c in self.classes).items() if count > 1]
        if twice:
            raise ValueError(f"classes: {', '.join(twice)} appears more than once; give each class its own name")
        return self


class JobQueue(Resource):
    """One application's classes on one database."""

    api_version: Annotated[Literal["jobqueue.dev/v1alpha1"], Field(examples=[API_VERSION])]
    kind: Literal["JobQueue"]
    metadata: Metadata
    spec: JobQueueSpec
    status: Annotated[dict[str, Any] | None, Field(description="Written by the operator, never read.")] = None
