"""As asked where that can be, else as accepted last, else not at all; the oldest first."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from jobqueue_operator.cluster.admission import Admission, Admitted
from jobqueue_operator.cluster.store import Store
from jobqueue_operator.planner import workload
from unit.planner.workload.shop import MANIFEST

DOWNSTREAM = {"apiVersion": MANIFEST["apiVersion"], "kind": "DownstreamCapacity"}


class World:
    """JobQueues of one class each, all of which lean on one downstream with 10 units unless they say otherwise."""

    def __init__(self) -> None:
        self.queues, self.capacities = Store(), Store()
        self.admission = Admission()
        self.downstream(units=10)

    def downstream(self, namespace: str = "default", **spec: Any) -> None:
        generation = 1 + max((known.generation for known in self.capacities.known.values()), default=0)
        self.capacities.put(DOWNSTREAM | {"metadata": self.metadata("db", namespace, "d", generation, 0), "spec": spec})

    @staticmethod
    def metadata(name: str, namespace: str, uid: str, generation: int, minute: int) -> dict[str, Any]:
        created = f"2026-03-01T08:{minute:02}:00Z"
        return {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "generation": generation,
            "creationTimestamp": created,
        }

    def put(self, name: str, least: Any = 0, *, minute: int = 0, uid: str = "u", **spec: Any) -> None:
        known = self.queues.known.get(("default", name))
        generation = known.generation + 1 if known is not None and known.uid == uid else 1
        made = copy.deepcopy(MANIFEST)
        made["spec"] |= {"classes": [MANIFEST["spec"]["classes"][0] | {"concurrency": 1}]}
        made["spec"]["classes"][0]["capacity"] = {"ref": {"name": "db"}, "unitsPerJob": 1, "minUnits": least}
        made["spec"] |= spec
        self.queues.put(made | {"metadata": self.metadata(name, "default", uid, generation, minute)})

    def admit(self) -> list[Admitted]:
        downstreams = {k.key: d for k in self.capacities.known.values() if (d := k.downstream) is not None}
        return self.admission.admit(reversed(list(self.queues.known.values())), downstreams)

    def admitted(self) -> dict[str, tuple[int, list[str]]]:
        """The generation that is carried out, 0 for none, and the reasons of what is not."""
        return {each.known.key[1]: (each.generation, [t.reason for t in each.troubles]) for each in self.admit()}


def test_the_oldest_come_first_and_have_what_they_reserve() -> None:
    world = World()
    world.put("young", 6, minute=2)
    world.put("old", 6, minute=1)
    assert [each.known.key[1] for each in world.admit()] == ["old", "young"]
    assert world.admitted() == {"old": (1, []), "young": (0, ["MinimumsAboveLimit"])}
    (trouble,) = world.admit()[1].troubles
    assert trouble.message == (
        "the classes on DownstreamCapacity default/db reserve old/email 6 + young/email 6 = 12 units, above 10; "
        "lower minUnits or replicas.min, or raise spec.units"
    )


def test_of_the_same_second_the_name_decides() -> None:
    world = World()
    world.put("a", 6)
    world.put("b", 6)
    assert world.admitted() == {"a": (1, []), "b": (0, ["MinimumsAboveLimit"])}


def test_what_was_accepted_last_stays_in_force_and_keeps_what_it_reserves() -> None:
    world = World()
    world.put("old", 6)
    assert world.admitted() == {"old": (1, [])}
    world.put("old", "many")
    world.put("young", 6, minute=1)
    assert world.admitted() == {"old": (1, ["InvalidSpec"]), "young": (0, ["MinimumsAboveLimit"])}
    world.put("young", 4, minute=1)
    assert world.admitted() == {"old": (1, ["InvalidSpec"]), "young": (2, [])}
    world.put("old", 5)
    assert world.admitted()["old"] == (3, [])


def test_a_younger_one_that_asks_for_too_much_beside_an_older_one_s_last_keeps_its_own_last() -> None:
    world = World()
    world.put("old", 6)
    world.put("young", 2, minute=1)
    world.admit()
    world.put("old", "many")
    world.put("young", 6, minute=1)
    assert world.admitted() == {"old": (1, ["InvalidSpec"]), "young": (1, ["MinimumsAboveLimit"])}


def test_what_was_accepted_and_does_not_fit_any_more_is_not_touched_until_it_does() -> None:
    world = World()
    world.put("old", 2)
    world.put("young", 8, minute=1)
    world.admit()
    world.put("old", 4)
    assert world.admitted() == {"old": (2, []), "young": (0, ["MinimumsAboveLimit"])}
    world.put("old", 1)
    assert world.admitted() == {"old": (3, []), "young": (1, [])}


def test_made_anew_it_begins_anew() -> None:
    world = World()
    world.put("shop", 1)
    world.admit()
    world.put("shop", "many", uid="another")
    assert world.admitted() == {"shop": (0, ["InvalidSpec"])}


def test_deleted_in_between_it_begins_anew() -> None:
    world = World()
    world.put("shop", 1)
    world.admit()
    world.queues.replace([])
    assert world.admit() == []
    world.put("shop", "many")
    assert world.admitted() == {"shop": (0, ["InvalidSpec"])}


def test_a_reference_that_leads_nowhere() -> None:
    world = World()
    world.put("shop", 1)
    world.admit()
    world.capacities.replace([])
    assert world.admitted() == {"shop": (0, ["CapacityMissing"])}
    (trouble,) = world.admit()[0].troubles
    assert trouble.message == (
        "spec.classes[0].capacity.ref: there is no valid DownstreamCapacity default/db; create it, or correct the "
        "reference"
    )


def test_one_job_that_is_larger_than_the_downstream() -> None:
    world = World()
    world.downstream(units=3, reserve=1)
    capacity = {"ref": {"name": "db"}, "unitsPerJob": 3}
    world.put("shop", classes=[MANIFEST["spec"]["classes"][0] | {"concurrency": 1, "capacity": capacity}])
    assert world.admitted() == {"shop": (0, ["UnitsAboveLimit"])}
    assert "takes 3 units, above the 2 of default/db; lower them" in world.admit()[0].troubles[0].message


def test_a_downstream_of_another_namespace_has_to_allow_it() -> None:
    world = World()
    world.downstream("other", units=10)
    capacity = {"ref": {"name": "db", "namespace": "other"}}
    world.put("shop", classes=[MANIFEST["spec"]["classes"][0] | {"capacity": capacity}])
    assert world.admitted() == {"shop": (0, ["CapacityNotAllowed"])}


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        ({"database": None}, "InvalidSpec", "spec.database: is missing; workers in a cluster"),
        ({"image": None}, "InvalidSpec", "spec.image: names no image; write the one"),
        (
            {"classes": [MANIFEST["spec"]["classes"][0] | {"podTemplate": {"spec": {"restartPolicy": "Never"}}}]},
            "InvalidPodTemplate",
            "spec.classes[0].podTemplate.spec.restartPolicy: is always Always",
        ),
    ],
)
def test_what_a_cluster_needs_is_said_once_with_its_field(spec: Any, reason: str, message: str) -> None:
    world = World()
    two = [MANIFEST["spec"]["classes"][0] | {"name": name} for name in ("email", "other")]
    world.put("shop", **({"classes": two} | spec))
    (admitted,) = world.admit()
    assert admitted.queue is None
    (trouble,) = admitted.troubles
    assert trouble.reason == reason
    assert trouble.message.startswith(message)


def test_a_generation_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[Any] = []
    problems = workload.problems

    def judge(*args: Any) -> Any:
        judged.append(args)
        return problems(*args)

    monkeypatch.setattr(workload, "problems", judge)
    world = World()
    world.put("shop")
    for _ in range(3):
        world.admit()
    assert len(judged) == 1
    world.put("shop")
    world.admit()
    assert len(judged) == 2
