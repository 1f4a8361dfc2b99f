"""Names as Kubernetes takes them, so that a manifest that works here works there."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from jobqueue_operator.resources import cel

LABEL_LENGTH = 63
"""Characters in a DNS label (RFC 1123)."""
CLASS_LENGTH = 40
"""Characters in a class name: with the JobQueue's name it names a Deployment, whose pods add a suffix."""

LABEL_PATTERN = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_LABEL = re.compile(LABEL_PATTERN.strip("^$"), re.ASCII)
_NO_LABEL = "is not a name; use lower-case letters, digits and '-', e.g. email-2"


def label(text: str, limit: int = LABEL_LENGTH) -> str:
    """Return `text` if it is a DNS label of at most `limit` characters; ValueError otherwise."""
    if not _LABEL.fullmatch(text):
        raise ValueError(_NO_LABEL)
    if len(text) > limit:
        raise ValueError(f"has {len(text)} characters; use at most {limit}")
    return text


def _class_name(text: str) -> str:
    return label(text, CLASS_LENGTH)


def _schema(limit: int) -> WithJsonSchema:
    text = {"type": "string", "pattern": LABEL_PATTERN, "maxLength": limit}
    return WithJsonSchema(text | cel.form(LABEL_PATTERN, _NO_LABEL))


Label = Annotated[str, AfterValidator(label), _schema(LABEL_LENGTH)]
ClassName = Annotated[str, AfterValidator(_class_name), _schema(CLASS_LENGTH)]
