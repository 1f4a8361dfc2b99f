"""From pydantic's JSON schema to the structural OpenAPI schema that a CustomResourceDefinition holds."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema

from jobqueue_operator.resources import cel
from jobqueue_operator.resources.durations import render

if TYPE_CHECKING:
    import pydantic

Schema = dict[str, Any]

_NOT_STRUCTURAL = {"title", "examples", "additionalProperties", "$defs", "const"}
_FIRST = ("type", "description", "default", "enum", "pattern", "minimum", "maximum", "required")
_LAST = ("properties", "items")
_RULE = ("rule", "message", "fieldPath")


class _AsWritten(GenerateJsonSchema):
    """Writes a default as a manifest would."""

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, timedelta):
            return render(dft)
        whole = isinstance(dft, float) and dft.is_integer()
        return int(dft) if whole else super().encode_default(dft)


def structural(model: type[pydantic.BaseModel]) -> Schema:
    """Return a model's schema: nothing refers elsewhere, nothing is nullable.

    An empty default is left out: absent says the same.
    """
    document = model.model_json_schema(by_alias=True, schema_generator=_AsWritten)
    return _node(document, document.get("$defs", {}))


def _node(given: Schema, models: Schema) -> Schema:
    found = _flat(given, models)
    plain = {key: value for key, value in found.items() if key not in _NOT_STRUCTURAL}
    if "const" in found:
        plain["enum"] = [found["const"]]
    if "exclusiveMinimum" in found:  # a number there, a flag here
        plain |= {"minimum": found["exclusiveMinimum"], "exclusiveMinimum": True}
    if "items" in found:
        plain["items"] = _node(found["items"], models)
    if "properties" in found:
        plain["properties"] = {name: _node(each, models) for name, each in found["properties"].items()}
    elif found.get("type") == "object":
        plain["x-kubernetes-preserve-unknown-fields"] = True
    return _in_order(_with_default(plain))


def _flat(given: Schema, models: Schema) -> Schema:
    """Put in what a node refers to; what it says itself comes first. Null is the same as absent, in both worlds."""
    own = {key: value for key, value in given.items() if key not in {"$ref", "anyOf"}}
    if "$ref" in given:
        return _flat(models[given["$ref"].removeprefix("#/$defs/")], models) | own
    if "anyOf" in given:
        (kind,) = (each for each in given["anyOf"] if each != {"type": "null"})
        return _flat(kind, models) | own
    return own


def _with_default(schema: Schema) -> Schema:
    """Write an object's default as the sum of its fields': rules are checked on it before those are filled in."""
    default = schema.pop("default", None)
    if schema.get("type") == "object" and default is not None:
        fields = schema.get("properties", {})
        default = {name: field["default"] for name, field in fields.items() if "default" in field}
    return schema if default in (None, [], {}) else schema | {"default": default}


def _in_order(schema: Schema) -> Schema:
    """Put first what a reader looks for first, and the parts after what is said of the whole."""
    if cel.KEY in schema:
        schema[cel.KEY] = [{key: rule[key] for key in _RULE if key in rule} for rule in schema[cel.KEY]]
    between = [key for key in schema if key not in _FIRST + _LAST]
    return {key: schema[key] for key in (*_FIRST, *between, *_LAST) if key in schema}
