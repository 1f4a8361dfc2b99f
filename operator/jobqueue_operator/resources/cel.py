"""Rules in CEL that an API server checks, and the few expressions they are made of.

Only what every supported API server knows: the standard library, and `matches`, `replace` and `split` of text. No text
is put together in a rule, because its cost could not be bounded before it runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

KEY = "x-kubernetes-validations"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. The message says why the field at `path` (below the value; empty: itself) is wrong, and the remedy."""

    expression: str
    message: str
    path: str = ""

    def document(self) -> dict[str, str]:
        """As a schema writes it."""
        said = {"rule": self.expression, "message": self.message}
        return said | ({"fieldPath": f".{self.path}"} if self.path else {})


def rules(*those: Rule) -> dict[str, Any]:
    """Return the part of a schema that holds these rules, for pydantic's `json_schema_extra`."""
    return {KEY: [rule.document() for rule in those]}


def form(pattern: str, message: str) -> dict[str, Any]:
    """Return the part of a text's schema that says in words what its pattern says to tools that read no CEL."""
    return rules(Rule(f"self.matches({quoted(pattern)})", message))


def quoted(text: str) -> str:
    """Return a text as a CEL literal that nothing in it can end or escape."""
    if '"' in text:
        raise ValueError(f"{text!r} holds a quote; write it without")
    return f'r"{text}"'


def span(value: timedelta) -> str:
    """Return a duration as CEL writes one; CEL knows no days."""
    whole, rest = divmod(value // timedelta(milliseconds=1), 1000)
    return f'duration("{whole}s")' if rest == 0 else f'duration("{whole * 1000 + rest}ms")'


def parsed(field: str) -> str:
    """Return the expression that reads a duration such as 1d12h out of a field.

    CEL's `duration` reads hours and less. The days are read as hours first, and what is missing of them, 23 hours each,
    is added as seconds since 1970.
    """
    days = f'timestamp(int({field}.split("d")[0]) * {23 * 3600}) - timestamp(0)'
    return f'(duration({field}.replace("d", "h")) + ({field}.contains("d") ? {days} : duration("0s")))'
