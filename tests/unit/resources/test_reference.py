"""docs/local.md names every field that a manifest may have."""

from pathlib import Path
from typing import Any, get_args

import pydantic

from jobqueue_operator.resources import DownstreamSpec, JobQueueSpec

REFERENCE = Path(__file__).parents[3] / "docs" / "local.md"


def fields(model: type[pydantic.BaseModel]) -> set[str]:
    found = set()
    for name, info in model.model_fields.items():
        found.add(info.alias or name)
        for inner in models(info.annotation):
            found |= fields(inner)
    return found


def models(annotation: Any) -> list[type[pydantic.BaseModel]]:
    own = [annotation] if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel) else []
    return own + [model for part in get_args(annotation) for model in models(part)]


def test_every_field_is_in_the_reference() -> None:
    text = REFERENCE.read_text()
    missing = [f for f in sorted(fields(JobQueueSpec) | fields(DownstreamSpec)) if f not in text]
    assert missing == []


def test_every_field_says_what_it_is() -> None:
    def undescribed(model: type[pydantic.BaseModel]) -> list[str]:
        found = [f"{model.__name__}.{n}" for n, info in model.model_fields.items() if not info.description]
        return found + [u for i in model.model_fields.values() for m in models(i.annotation) for u in undescribed(m)]

    assert undescribed(JobQueueSpec) + undescribed(DownstreamSpec) == []
