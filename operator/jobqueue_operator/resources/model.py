"""What every model of a manifest shares: closed, frozen, strict, camelCase, null means absent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import pydantic
from pydantic import ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from jobqueue_operator.resources.names import Label

if TYPE_CHECKING:
    from pydantic.config import JsonDict

API_VERSION = "jobqueue.dev/v1alpha1"


def map_by(*keys: str) -> JsonDict:
    """Return the part of a list's schema that says which fields tell its entries apart: none may come twice."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


class Resource(pydantic.BaseModel):
    """A part of a manifest. Unknown fields are refused, `"16"` is no number, and `null` is the same as not said."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, alias_generator=to_camel, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _null_means_absent(cls, value: Any) -> Any:
        # As an API server does for fields that have a default.
        if isinstance(value, dict):
            return {k: v for k, v in value.items() if v is not None}
        return value


class Metadata(Resource):
    """The part of `metadata` that is used here; a server adds more, which is ignored."""

    model_config = ConfigDict(extra="ignore")

    name: Annotated[Label, Field(description="Name of the object, a DNS label.", examples=["shop"])]
    namespace: Annotated[Label, Field(description="Namespace of the object.")] = "default"


class NameRef(Resource):
    """A reference to an object of the same namespace, by name."""

    name: Annotated[Label, Field(description="Name of the object.", examples=["shop-queue"])]
