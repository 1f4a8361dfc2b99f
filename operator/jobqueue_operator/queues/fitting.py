"""What is kept of a snapshot's answer: no more than a queue can have, and nothing that nobody reads. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobqueue_operator.queues.allowance import AnswerTooLarge

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sized

CLASSES_MOST = 5_000
WORKERS_MOST = 40_000
DOWNSTREAMS_MOST = 1_000
TABLES_MOST = 1_000
VERSIONS_MOST = 20
KIND_MOST = 200
"""Characters."""
STEPS_MOST = 300
"""Entries of a list about one class. Lengths of attempts come in quarters of a doubling: 140 reach a year."""
MEMORY_MOST = 100
"""Numbers that a planner keeps of a class."""


def fitting(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of `snapshot()` as far as it is read. Raises AnswerTooLarge, or what a wrong shape does."""
    for name, found, most in _sizes(answer):
        if len(found) > most:
            raise AnswerTooLarge(
                f"the database's snapshot has {len(found)} {name}, and {most} are taken at most; spread the queue over "
                "more databases"
            )
    return {
        **answer,
        "classes": [{**row, "memory": _flat(row["memory"])} for row in answer["classes"]],
        "workers": [{**row, "info": {}} for row in answer["workers"]],
        "versions": [{**row, "kind": row["kind"][:KIND_MOST]} for row in answer["versions"]],
    }


def _sizes(answer: Mapping[str, Any]) -> Iterator[tuple[str, Sized, int]]:
    yield "classes", answer["classes"], CLASSES_MOST
    yield "workers", answer["workers"], WORKERS_MOST
    yield "downstreams", answer["downstreams"], DOWNSTREAMS_MOST
    yield "versions", answer["versions"], VERSIONS_MOST
    for row in answer["versions"]:
        yield "versions.lacking", row["lacking"], WORKERS_MOST
    for tables in ("dead_tuples", "table_bytes"):
        yield f"database.{tables}", answer["database"][tables], TABLES_MOST
    for row in answer["classes"]:
        yield "classes.ages", row["ages"], STEPS_MOST
        yield "classes.due_soon", row["due_soon"], STEPS_MOST
        yield "classes.attempts.finished", row["attempts"]["finished"], STEPS_MOST
        yield "classes.attempts.running", row["attempts"]["running"], STEPS_MOST
        yield "classes.memory", row["memory"] or (), MEMORY_MOST


def _flat(memory: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return what a planner stored; whatever is no single value was stored by somebody else."""
    if memory is None:
        return None
    return {name: None if isinstance(value, list | dict) else value for name, value in memory.items()}
