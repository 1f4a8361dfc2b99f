"""DownstreamCapacity: what the jobs lean on, and how much of it they may take."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from jobqueue_operator.resources import cel
from jobqueue_operator.resources.durations import Span
from jobqueue_operator.resources.job_class import UNITS_MOST
from jobqueue_operator.resources.model import API_VERSION, Metadata, Resource, map_by
from jobqueue_operator.resources.names import Label


class Allowance(Resource):
    """What JobQueues of one namespace may ask for."""

    model_config = ConfigDict(
        json_schema_extra=cel.rules(
            cel.Rule(
                "!has(self.maxUnits) || self.minUnits <= self.maxUnits",
                "minUnits is above maxUnits; lower minUnits or raise maxUnits",
                "minUnits",
            )
        )
    )

    namespace: Annotated[Label, Field(description="Whose JobQueues these bounds are for.", examples=["shop"])]
    max_units: Annotated[int | None, Field(ge=0, le=UNITS_MOST, description="Units at most, together.")] = None
    min_units: Annotated[int, Field(ge=0, le=UNITS_MOST, description="Units they may reserve, together.")] = 0
    weight: Annotated[int, Field(ge=1, le=1000, description="The highest weight of a class.")] = 1000
    max_priority: Annotated[int, Field(ge=0, le=1000, description="The highest priority of a class.")] = 1000

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max_units is not None and self.min_units > self.max_units:
            raise ValueError(
                f"minUnits {self.min_units} is above maxUnits {self.max_units}; lower it or raise maxUnits"
            )
        return self


class Adaptive(Resource):
    """Lower the working limit while the downstream shows that it is saturated."""

    enabled: Annotated[bool, Field(description="Off unless said. A lack of speed-up is always a sign.")] = False
    min_units: Annotated[int, Field(ge=1, le=UNITS_MOST, description="Never below this.")] = 1
    error_rate: Annotated[
        float | None,
        Field(gt=0, le=1, allow_inf_nan=False, description="Share of attempts that fail, above which it backs off."),
    ] = None
    latency: Annotated[
        Span | None, Field(description="Mean length of an attempt above which it backs off.", examples=["2s"])
    ] = None


class DownstreamSpec(Resource):
    """A limit in units. A unit is whatever its owner counts: connections, requests, licences."""

    model_config = ConfigDict(
        json_schema_extra=cel.rules(
            cel.Rule("has(self.units) != self.connections", "give either units, or connections: true", "units"),
            cel.Rule(
                "!has(self.units) || self.reserve < self.units",
                "reserve leaves nothing of units; lower reserve, or raise units",
                "reserve",
            ),
            cel.Rule(
                "!has(self.units) || self.adaptive.minUnits <= self.units - self.reserve",
                "adaptive.minUnits is above units less reserve; lower it, or raise units",
                "adaptive.minUnits",
            ),
        )
    )

    units: Annotated[
        int | None, Field(ge=1, le=UNITS_MOST, description="Units in use at once, at most.", examples=["40"])
    ] = None
    connections: Annotated[
        bool,
        Field(description="Instead of units: the connections that the queue's own server grants to ordinary users."),
    ] = False
    reserve: Annotated[
        int, Field(ge=0, le=UNITS_MOST, description="Units that are left to others, such as people and migrations.")
    ] = 0
    allow: Annotated[
        tuple[Allowance, ...],
        Field(
            max_length=200,
            strict=False,
            description="Bounds for other namespaces; without an entry, nothing.",
            json_schema_extra=map_by("namespace"),
        ),
    ] = ()
    adaptive: Annotated[Adaptive, Field(description="Back off when saturated.")] = Adaptive()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        twice = [name for name, count in Counter(a.namespace for a in self.allow).items() if count > 1]
        if twice:
            raise ValueError(f"allow: {', '.join(twice)} appears more than once; keep one entry a namespace")
        if (self.units is not None) == self.connections:
            raise ValueError("units: give either units, or connections: true")
        if self.units is not None and self.reserve >= self.units:
            raise ValueError(
                f"reserve: {self.reserve} leaves nothing of units {self.units}; lower reserve, or raise units"
            )
        if self.units is not None and self.adaptive.min_units > self.units - self.reserve:
            left = f"units {self.units}" + (f" less reserve {self.reserve}" if self.reserve else "")
            raise ValueError(f"adaptive.minUnits {self.adaptive.min_units} is above {left}; lower it, or raise units")
        return self


class DownstreamCapacity(Resource):
    """The capacity of one downstream, shared by the classes that refer to it."""

    api_version: Annotated[Literal["jobqueue.dev/v1alpha1"], Field(examples=[API_VERSION])]
    kind: Literal["DownstreamCapacity"]
    metadata: Metadata
    spec: DownstreamSpec
    status: Annotated[dict[str, Any] | None, Field(description="Written by the operator, never read.")] = None
