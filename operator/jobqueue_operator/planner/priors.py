"""What of a class's memory outlives the operator: a small JSON object in the queue's database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobqueue_operator.planner.memory import ClassMemory
from jobqueue_operator.planner.plan import Condition, Decision, Plan, Pool, Reason, Remark

if TYPE_CHECKING:
    from collections.abc import Mapping

SECONDS_MOST = 7 * 86_400.0
"""No prior is longer than a handler may take."""


def stored(memory: ClassMemory) -> dict[str, float]:
    """Return what is to be kept of a memory; seconds, to three digits, so that it changes only when it matters."""
    found = {"prior": memory.prior, "startDelay": memory.start_delay}
    return {name: float(f"{value:.3g}") for name, value in found.items() if value is not None}


def restore(kept: Mapping[str, Any]) -> Plan:
    """Return the plan to begin with, from what `stored` gave for each class; what cannot be read is left out and said.

    It decides nothing: the first plan after it keeps the workers that exist until a scale-in window has passed.
    """
    return Plan(tuple(_pool(class_, value) for class_, value in sorted(kept.items()) if value is not None))


def _pool(class_: str, value: Any) -> Pool:
    numbers: dict[str, float] = {}
    wrong = [] if isinstance(value, dict) else ["it is no object"]
    for name in ("prior", "startDelay") if isinstance(value, dict) else ():
        number = value.get(name)
        if number is None:
            continue
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= SECONDS_MOST:
            wrong.append(f"{name} is not a number of seconds")
        else:
            numbers[name] = float(number)
    memory = ClassMemory(prior=numbers.get("prior"), start_delay=numbers.get("startDelay"))
    remarks = (
        (Remark(Condition.MEMORY_REFUSED, f"class {class_}: {'; '.join(wrong)}; beginning anew"),) if wrong else ()
    )
    return Pool(class_, "", Decision(0, Reason.RESTORED, "restored from the queue", remarks=remarks), memory=memory)
