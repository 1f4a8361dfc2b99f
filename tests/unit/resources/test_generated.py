"""What is generated from the models: current, structural, bounded, and in words that help."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from jobqueue_operator.resources import cel, generate
from jobqueue_operator.resources.crds import downstream_capacities, job_queues
from jobqueue_operator.resources.durations import parse
from jobqueue_operator.resources.job_queue import JobQueueSpec
from jobqueue_operator.resources.schema import structural

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
DEFINITIONS = [job_queues(), downstream_capacities()]


def schema_of(definition: Any) -> Any:
    return definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def nodes(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        yield from nodes(each, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")


NODES = [pytest.param(node, id=path or "root") for d in DEFINITIONS for path, node in nodes(schema_of(d))]
RULES = [rule for d in DEFINITIONS for _, node in nodes(schema_of(d)) for rule in node.get(cel.KEY, ())]


@pytest.mark.parametrize("name", generate.files())
def test_the_files_are_those_of_the_models(name: str) -> None:
    assert (ROOT / name).read_text() == generate.files()[name], "run `make generate`"


def test_every_file_is_written_below_the_folder(tmp_path: Path) -> None:
    generate.main(tmp_path)
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert written == set(generate.files())


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda d: str(d["metadata"]["name"]))
def test_the_chart_holds_the_same_behind_a_condition_and_keeps_it(definition: Any) -> None:
    name = f"{definition['spec']['names']['plural']}.yaml"
    files = generate.files()
    assert yaml.safe_load(files[f"crds/{name}"]) == definition
    first, *lines, last = files[f"charts/jobqueue-operator/templates/crds/{name}"].splitlines()
    assert (first, last) == ("{{- if .Values.crds.enabled }}", "{{- end }}")
    body = "\n".join(lines)
    assert "{{" not in body, "Helm would read it"
    kept = yaml.safe_load(body)
    assert kept["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert kept == definition


@pytest.mark.parametrize("node", NODES)
def test_every_part_is_structural_and_bounded(node: dict[str, Any]) -> None:
    assert set(node) <= {
        *("type", "description", "default", "enum", "pattern", "format", "required", "properties", "items"),
        *("minimum", "maximum", "exclusiveMinimum", "minItems", "maxItems", "minLength", "maxLength"),
        *("x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
        "x-kubernetes-preserve-unknown-fields",
    }
    match node["type"]:
        case "string":
            assert "maxLength" in node or "enum" in node or "description" not in node, "apiVersion and kind apart"
        case "array":
            assert {"maxItems", "items"} <= set(node)
        case "object":
            assert "properties" in node or "x-kubernetes-preserve-unknown-fields" in node or "description" not in node
        case kind:
            assert kind in {"integer", "number", "boolean"}


def test_only_the_pod_template_is_open() -> None:
    open_ones = [
        path
        for definition in DEFINITIONS
        for path, node in nodes(schema_of(definition))
        if "x-kubernetes-preserve-unknown-fields" in node
    ]
    assert open_ones == [".spec.classes[].podTemplate"]


def test_defaults_are_written_as_in_a_manifest() -> None:
    spec = structural(JobQueueSpec)
    assert spec["properties"]["retention"]["default"] == {"done": "7d", "dead": "30d"}
    fields = spec["properties"]["classes"]["items"]["properties"]
    assert fields["retry"]["default"] == {"maxAttempts": 10, "backoff": {"initial": "2s", "factor": 2, "max": "10m"}}
    assert fields["replicas"]["default"] == {"min": 1, "idleAfter": "2m", "behavior": "Default"}
    assert "default" not in fields["replicas"]["properties"]["max"], "it depends on min"
    assert "default" not in fields["schedule"]
    assert "default" not in fields["capacity"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["message"])[:40])
def test_every_rule_says_reason_and_remedy(rule: dict[str, str]) -> None:
    assert "\n" not in rule["message"]
    assert ";" in rule["message"] or "give either" in rule["message"]
    assert len(rule["message"]) <= 250
    assert rule.get("fieldPath", ".").startswith(".")


@pytest.mark.parametrize(
    ("value", "text"),
    [("7d", 'duration("604800s")'), ("100ms", 'duration("100ms")'), ("1500ms", 'duration("1500ms")')],
)
def test_bounds_in_cel(value: str, text: str) -> None:
    assert cel.span(parse(value)) == text


def test_a_pattern_cannot_end_its_literal() -> None:
    with pytest.raises(ValueError, match="holds a quote; write it without"):
        cel.quoted('^"$')
