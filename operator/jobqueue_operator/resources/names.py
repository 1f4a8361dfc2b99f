"""Names as Kubernetes takes them, so that a manifest that works here works there."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

LABEL_LENGTH = 63
"""Characters in a DNS label (RFC 1123)."""
CLASS_LENGTH = 40
"""Characters in a class name: with the JobQueue's name it names a Deployment, whose pods add a suffix."""

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)


def label(text: str, limit: int = LABEL_LENGTH) -> str:
    """Return `text` if it is a DNS label of at most `limit` characters; ValueError otherwise."""
    if not _LABEL.fullmatch(text):
        raise ValueError("is not a name; use lower-case letters, digits and '-', e.g. email-2")
    if len(text) > limit:
        raise ValueError(f"has {len(text)} characters; use at most {limit}")
    return text


def _class_name(text: str) -> str:
    return label(text, CLASS_LENGTH)


Label = Annotated[str, AfterValidator(label)]
ClassName = Annotated[str, AfterValidator(_class_name)]
