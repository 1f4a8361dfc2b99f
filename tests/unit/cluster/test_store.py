"""Manifests as an API server has them: read once a generation, whatever they are."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from jobqueue_operator import manifest
from jobqueue_operator.cluster import store as store_module
from jobqueue_operator.cluster.admission import Admission
from jobqueue_operator.cluster.store import Store
from jobqueue_operator.planner import workload
from unit.planner.workload.shop import MANIFEST as SHOP

if TYPE_CHECKING:
    import pytest

    from jobqueue_operator.resources import ClassSpec, JobQueue

MANIFEST = copy.deepcopy(SHOP)
del MANIFEST["spec"]["classes"][0]["capacity"]


def thing(name: str = "shop", **changes: Any) -> dict[str, Any]:
    made = copy.deepcopy(MANIFEST)
    made["metadata"] = {
        "name": name,
        "namespace": "default",
        "uid": "u1",
        "generation": 1,
        "creationTimestamp": "2026-03-01T08:00:00Z",
        "managedFields": [],
    } | changes.pop("metadata", {})
    return made | changes


def test_a_manifest_is_known_with_what_it_asks_for() -> None:
    store = Store()
    asked = {"restart.jobqueue.dev/email": "2026-03-01T09:00:00Z", "other": "x"}
    assert store.put(thing(metadata={"annotations": asked}, status={"replicas": 3}))
    (known,) = store.known.values()
    assert (known.key, known.uid, known.generation, known.problems) == (("default", "shop"), "u1", 1, ())
    assert known.queue is not None
    assert known.downstream is None
    assert known.status == {"replicas": 3}
    assert known.restarts == {"email": "2026-03-01T09:00:00Z"}


def test_news_is_another_generation_another_object_or_a_restart() -> None:
    store = Store()
    assert store.put(thing())
    assert not store.put(thing(status={"replicas": 1}))
    assert store.put(thing(metadata={"generation": 2}))
    assert store.put(thing(metadata={"generation": 2, "uid": "u2"}))
    again = {"generation": 2, "uid": "u2", "annotations": {"restart.jobqueue.dev/email": "now"}}
    assert store.put(thing(metadata=again))


def test_a_generation_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []

    def reading(document: Any) -> Any:
        read.append(document)
        return manifest.validate(document)

    monkeypatch.setattr(store_module, "validate", reading)
    store = Store()
    for _ in range(3):
        store.put(thing())
    assert len(read) == 1
    store.put(thing(metadata={"generation": 2}))
    store.put(thing(metadata={"generation": 2, "uid": "u2"}))
    assert len(read) == 3


def test_what_is_wrong_names_its_field() -> None:
    store = Store()
    store.put(thing(spec=MANIFEST["spec"] | {"app": 3}))
    (known,) = store.known.values()
    assert known.queue is None
    assert [problem.partition(":")[0] for problem in known.problems] == ["spec.app"]


def test_what_is_wrong_in_its_sums_is_no_manifest() -> None:
    store = Store()
    spec = copy.deepcopy(MANIFEST["spec"])
    spec["classes"][0]["lease"] = {"duration": "30s", "heartbeat": "20s"}
    store.put(thing(spec=spec))
    (known,) = store.known.values()
    assert known.queue is None
    assert known.problems[0].startswith("spec.classes[0].lease.duration: 30s is shorter than 3 heartbeats")


def test_what_is_deleted_is_gone_unless_it_was_made_anew() -> None:
    store = Store()
    store.put(thing(metadata={"uid": "u2"}))
    store.drop(thing())
    store.drop(thing("other"))
    assert len(store.known) == 1
    store.drop(thing(metadata={"uid": "u2"}))
    assert store.known == {}
    assert [known.uid for known in store.take_gone()] == ["u2"]
    assert store.take_gone() == []


def test_a_list_is_all_there_is() -> None:
    store = Store()
    store.put(thing("a"))
    store.put(thing("b"))
    store.replace([thing("b"), thing("c")])
    assert sorted(name for _, name in store.known) == ["b", "c"]
    assert [known.key[1] for known in store.take_gone()] == ["a"]


json_ = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@st.composite
def spoilt(draw: st.DrawFn) -> Any:
    """A spec with anything at one to three of its places."""
    spec = copy.deepcopy(MANIFEST["spec"])
    spec["classes"][0].setdefault("podTemplate", {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}})
    for _ in range(draw(st.integers(1, 3))):
        holder: Any = spec
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            key = draw(st.sampled_from(keys))
            if not holder[key] or not isinstance(holder[key], dict | list) or draw(st.integers(0, 3)) == 0:
                break
            holder = holder[key]
        holder[key] = draw(json_)
        if not spec:
            break
    return spec


@settings(max_examples=100)
@given(spec=json_ | spoilt())
def test_a_broken_one_is_refused_or_carried_out_and_disturbs_no_other(spec: Any) -> None:
    store = Store()
    store.replace([thing("broken", spec=spec), thing("shop")])
    broken, shop = Admission().admit(store.known.values(), {})
    assert shop.queue is not None
    assert (broken.queue is None) == bool(broken.troubles)
    assert all(trouble.message for trouble in broken.troubles)


def test_one_that_cannot_even_be_judged_disturbs_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    validate, problems = manifest.validate, workload.problems

    def bad(value: str) -> None:
        if "broken" in value:
            raise RecursionError

    def read(document: Any) -> Any:
        bad(document["metadata"]["name"])
        return validate(document)

    def judged(queue: JobQueue, spec: ClassSpec) -> Any:
        bad(queue.spec.app)
        return problems(queue, spec)

    monkeypatch.setattr(store_module, "validate", read)
    monkeypatch.setattr(workload, "problems", judged)
    store = Store()
    store.replace([thing("broken"), thing("late", spec=MANIFEST["spec"] | {"app": "broken:app"}), thing("shop")])
    broken, late, shop = Admission().admit(store.known.values(), {})
    assert shop.queue is not None
    assert broken.queue is late.queue is None
    assert [[(t.reason, t.message) for t in each.troubles] for each in (broken, late)] == [
        [("InvalidSpec", "spec: cannot be read (RecursionError); nest podTemplate less deeply")],
        [("InvalidPodTemplate", "its pods cannot be made (RecursionError); simplify podTemplate")],
    ]
    assert len(caplog.records) == 2
