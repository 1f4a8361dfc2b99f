"""Writes what is generated from the models: `python -m jobqueue_operator.resources.generate [FOLDER]`.

FOLDER is the project's, the current one by default.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml

from jobqueue_operator.resources.crds import downstream_capacities, job_queues
from jobqueue_operator.resources.reference import reference

_HEADER = "# Generated from operator/jobqueue_operator/resources by `make generate`; do not edit.\n"
_KEEP = {"helm.sh/resource-policy": "keep"}  # uninstalling the operator leaves every JobQueue alone


def files() -> dict[str, str]:
    """Return the text of every generated file by its path in the project."""
    found = {"docs/reference.md": reference()}
    for definition in (job_queues(), downstream_capacities()):
        name = f"{definition['spec']['names']['plural']}.yaml"
        found[f"crds/{name}"] = _HEADER + _write(definition)
        kept = definition | {"metadata": definition["metadata"] | {"annotations": _KEEP}}
        found[f"charts/jobqueue-operator/templates/crds/{name}"] = (
            "{{- if .Values.crds.enabled }}\n" + _HEADER + _write(kept) + "{{- end }}\n"
        )
    return found


def _write(document: object) -> str:
    # Through JSON, so that nothing is shared: of what is, YAML would write an anchor and aliases.
    return yaml.safe_dump(json.loads(json.dumps(document)), sort_keys=False, width=120)


def main(folder: Path) -> None:
    """Write the files below `folder`."""
    for name, text in files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main(Path(*sys.argv[1:2]))
