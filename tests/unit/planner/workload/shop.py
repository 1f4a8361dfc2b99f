"""The manifest that these tests render, as it is or with changes. Run as a program: what it is rendered to, as YAML."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import yaml

from jobqueue_operator.planner import workload
from jobqueue_operator.resources import JobQueue

OWNER = "6f1d3c52-0d6f-4a6e-9f0b-3f3d9a1b7c11"
MANIFEST: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("shop.yaml").read_text())


def shop(**fields: Any) -> JobQueue:
    """Return the JobQueue with fields of its spec set; `a__b=value` sets a.b, `email__…` one of its class."""
    manifest = copy.deepcopy(MANIFEST)
    for name, value in fields.items():
        first, *way = name.split("__")
        holder = manifest["spec"]["classes"][0] if first == "email" else manifest["spec"]
        *way, last = way if first == "email" else [first, *way]
        for step in way:
            holder = holder.setdefault(step, {})
        holder[last] = value
    return JobQueue.model_validate(manifest)


def made(queue: JobQueue | None = None, **options: Any) -> workload.Made:
    """Make the objects of the first class."""
    queue = queue or shop()
    return workload.objects(queue, queue.spec.classes[0], owner_uid=OWNER, **options)


def pod(queue: JobQueue | None = None) -> dict[str, Any]:
    """Return the pod spec of the first class."""
    spec: dict[str, Any] = made(queue).deployment["spec"]["template"]["spec"]
    return spec


def worker(queue: JobQueue | None = None) -> dict[str, Any]:
    """Return the worker container of the first class."""
    return next(each for each in pod(queue)["containers"] if each["name"] == "worker")


def environment(queue: JobQueue | None = None) -> dict[str, Any]:
    """Return its variables: values, or the fields of the pod that they are taken from."""
    return {
        each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] if "valueFrom" in each else each.get("value", "")
        for each in worker(queue)["env"]
    }


def rendered() -> str:
    """Return every object of the manifest as YAML."""
    one = made(network_policy=True)
    every = [
        workload.service_account(shop(), owner_uid=OWNER),
        workload.scaled(one, replicas=3, rolling=workload.Rolling(1, 0)),
        one.disruption_budget,
        one.network_policy,
    ]
    return yaml.safe_dump_all(copy.deepcopy(every), sort_keys=False)


if __name__ == "__main__":
    sys.stdout.write(rendered())
