"""What is asked for: pools and downstream capacities, each with what a plan needs to know beside its manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobqueue_operator.resources import ClassSpec, DownstreamSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """One class of one JobQueue."""

    key: str
    """Unique among all pools of a plan: the class's name where there is one database."""
    spec: ClassSpec
    revision: str = ""
    """What its workers should be made from: an opaque word; another word, another worker."""
    namespace: str = "default"
    queue: str = ""
    """The JobQueue's name."""
    database: str = ""
    downstream: str | None = None
    """Name of the capacity it leans on, as in `CapacitySpec.name`."""
    surges: bool = False
    """Whether its platform can start a worker beside the one that it replaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySpec:
    """One DownstreamCapacity."""

    name: str
    spec: DownstreamSpec
    namespace: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Everything that one plan is made for."""

    pools: tuple[PoolSpec, ...] = ()
    capacities: tuple[CapacitySpec, ...] = ()
