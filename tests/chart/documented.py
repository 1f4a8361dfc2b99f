"""The values of the chart as their comments in values.yaml document them. Run it to renew the README's table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from services.helm import CHART

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUES = CHART / "values.yaml"
README = CHART / "README.md"
BEGIN = "<!-- made of values.yaml by tests/chart/documented.py -->\n"
END = "<!-- end -->\n"


@dataclass(frozen=True)
class Value:
    """One value: its path, its default and what the comment above it says."""

    key: str
    default: Any
    text: str


def values() -> list[Value]:
    """Return every value of values.yaml. A mapping whose keys have comments is a group, any other is one value."""
    source = VALUES.read_text()
    root = yaml.compose(source, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    return list(_values(root, source.splitlines(), yaml.safe_load(source), ()))


def _values(node: yaml.MappingNode, lines: list[str], defaults: Any, path: tuple[str, ...]) -> Iterator[Value]:
    for key_node, value_node in node.value:
        key = (*path, key_node.value)
        default = defaults[key_node.value]
        if _is_group(value_node, lines):
            yield from _values(value_node, lines, default, key)
        else:
            yield Value(".".join(key), default, _comment(lines, key_node))


def _is_group(node: yaml.Node, lines: list[str]) -> bool:
    return isinstance(node, yaml.MappingNode) and any(_comment(lines, key) for key, _ in node.value)


def _comment(lines: list[str], key: yaml.Node) -> str:
    """Return the comment right above a key, indented like it, in one line; empty when there is none."""
    before = " " * key.start_mark.column + "# "
    first = last = key.start_mark.line
    while first > 0 and lines[first - 1].startswith(before):
        first -= 1
    return " ".join(line[len(before) :].strip() for line in lines[first:last])


def table() -> str:
    """Return the README's table of values."""
    rows = [f"| `{each.key}` | `{json.dumps(each.default)}` | {each.text} |\n" for each in values()]
    return "| value | default | |\n|---|---|---|\n" + "".join(rows)


def renewed(readme: str) -> str:
    """Return the README with today's table between its two marks."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + table() + END + after


if __name__ == "__main__":
    README.write_text(renewed(README.read_text()))
