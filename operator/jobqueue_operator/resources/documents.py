"""YAML to plain values, safely: no tags, no duplicate keys, no bombs, and `yes` stays a word.

The limits are those of what an API server would take, so that a manifest that is read here is read there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

if TYPE_CHECKING:
    from collections.abc import Iterator

BYTES_MOST = 1_048_576
"""Size of a file."""
DOCUMENTS_MOST = 100
VALUES_MOST = 50_000
"""Values in one document, aliases counted as often as they are used."""
DEPTH_MOST = 64


class DocumentError(ValueError):
    """The text is not YAML that a manifest may be written in. The message says where and why."""


class _Loader(yaml.SafeLoader):
    """The safe loader with the scalars of JSON, and keys that are unique text."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own way to say it

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        seen: set[str] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, ScalarNode) or not key_node.tag.endswith((":str", ":merge")):
                raise ConstructorError(None, None, "a key is not plain text; quote it", key_node.start_mark)
            if key_node.tag.endswith(":merge"):
                continue
            if key_node.value in seen:
                raise ConstructorError(
                    None, None, f"key {key_node.value[:60]!r} appears twice; keep one", key_node.start_mark
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)


for _tag, _pattern, _first in (
    ("bool", r"^(?:true|false|True|False)$", "tfTF"),
    ("null", r"^(?:~|null|Null|NULL|)$", "~nN\0"),
    ("int", r"^[-+]?(?:0|[1-9][0-9]{0,17})$", "-+0123456789"),
    (
        "float",
        r"^[-+]?(?:[0-9]{1,17}\.[0-9]{0,17}|\.[0-9]{1,17}|[0-9]{1,17})(?:[eE][-+]?[0-9]{1,3})?$",
        "-+.0123456789",
    ),
    ("merge", r"^(?:<<)$", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))
_Loader.yaml_implicit_resolvers[""] = [("tag:yaml.org,2002:null", re.compile(r"^$"))]


def read(text: str) -> list[Any]:
    """Return the values of a text's documents, empty documents left out. DocumentError when it is not safe YAML."""
    if len(text.encode(errors="surrogatepass")) > BYTES_MOST:
        raise DocumentError(f"has more than {BYTES_MOST} bytes; split it")
    if yaml.reader.Reader.NON_PRINTABLE.search(text):
        raise DocumentError("holds characters that YAML does not allow; save it as UTF-8 text")
    loader = _Loader(text)
    try:
        return list(_documents(loader))
    except DocumentError:
        raise
    except yaml.MarkedYAMLError as error:
        raise DocumentError(_explain(error)) from error
    except yaml.YAMLError as error:
        raise DocumentError(f"is not YAML: {str(error).splitlines()[0][:200]}") from error
    except RecursionError:
        raise DocumentError(f"is nested more than {DEPTH_MOST} levels deep; flatten it") from None
    except (ValueError, OverflowError) as error:
        raise DocumentError(f"holds a value that cannot be read: {str(error)[:200]}; quote it") from error
    finally:
        loader.dispose()


def _documents(loader: _Loader) -> Iterator[Any]:
    count = 0
    while loader.check_node():
        node = loader.get_node()
        if node is None:
            continue
        count += 1
        if count > DOCUMENTS_MOST:
            raise DocumentError(f"has more than {DOCUMENTS_MOST} documents; split it")
        _measure(node)
        value = loader.construct_document(node)
        if value is not None:
            yield value


def _explain(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{where}{(error.problem or error.context or 'is not YAML')[:200]}"


def _measure(root: Node) -> None:
    """Refuse cycles, depth and size before anything is built; aliases are shared nodes, so sizes are remembered."""
    sizes: dict[int, tuple[int, int]] = {}  # node -> (values, levels)
    open_nodes: set[int] = set()

    def measure(node: Node) -> tuple[int, int]:
        known = sizes.get(id(node))
        if known is not None:
            return known
        if id(node) in open_nodes:
            raise DocumentError(f"line {node.start_mark.line + 1}: an alias holds itself; write the value out")
        open_nodes.add(id(node))
        children: list[Node] = []
        if isinstance(node, SequenceNode):
            children = node.value
        elif isinstance(node, MappingNode):
            children = [part for pair in node.value for part in pair]
        values, levels = 1, 0
        for child in children:
            child_values, child_levels = measure(child)
            values += child_values
            levels = max(levels, child_levels)
        if values > VALUES_MOST:
            raise DocumentError(f"holds more than {VALUES_MOST} values; split it")
        if levels + 1 > DEPTH_MOST:
            raise DocumentError(f"is nested more than {DEPTH_MOST} levels deep; flatten it")
        open_nodes.discard(id(node))
        sizes[id(node)] = (values, levels + 1)
        return sizes[id(node)]

    measure(root)
