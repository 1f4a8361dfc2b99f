"""Which old workers a rollout leaves while jobs are queued that perhaps no new one understands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue_operator.planner.decide import plan
from jobqueue_operator.planner.facts import ClassFacts, Facts, Phase, QueuedVersion, WorkerFacts
from jobqueue_operator.planner.plan import Kept, Plan, Pool, Reason
from jobqueue_operator.planner.versions import kept
from jobqueue_operator.planner.workload import Rolling, rolling
from unit.planner.world import asked, spec

RENDER, MAIL = QueuedVersion("render", 1, 3), QueuedVersion("mail", 2, 1)
BUSY = ClassFacts(ready=4)
UNKNOWN, QUEUED = Reason.WAITING_FOR_READY, Reason.OLD_VERSION_QUEUED


def worker(name: str, lacks: str = "", *, phase: Phase = Phase.READY, **fields: Any) -> WorkerFacts:
    """An old worker is called o…, of the revision that the rest of its name's first digit says; a new one n…."""
    revision = "r1" if name.startswith("n") else name[:2]
    named = {"r": RENDER.name, "m": MAIL.name}
    return WorkerFacts(
        name=name, class_="email", phase=phase, revision=revision, lacks=tuple(named[c] for c in lacks), **fields
    )


def pool(*workers: WorkerFacts, seen: ClassFacts = BUSY, replicas: int = 1, before: Pool | None = None) -> Pool:
    facts = Facts(classes={"email": seen}, workers=workers)
    wanted = asked(spec(replicas={"min": replicas, "max": replicas}))
    found = plan(wanted, facts, Plan((before,)) if before is not None else None, now=100.0).pool("email")
    assert found is not None
    return found


def contested(*versions: QueuedVersion) -> ClassFacts:
    return replace(BUSY, versions=versions)


STARTING = worker("n", phase=Phase.STARTING)


@pytest.mark.parametrize(
    ("workers", "seen", "names", "reason"),
    [
        # Nobody knows yet what new workers understand.
        ([worker("o1")], BUSY, ["o1"], UNKNOWN),
        ([worker("o1")], ClassFacts(scheduled=1), ["o1"], UNKNOWN),
        ([worker("o1")], ClassFacts(in_flight=1), ["o1"], UNKNOWN),
        ([worker("o1"), STARTING], BUSY, ["o1"], UNKNOWN),
        ([worker("o1-a", busy=2), worker("o1-b"), worker("o2")], BUSY, ["o2", "o1-a"], UNKNOWN),
        ([worker("o1", phase=Phase.STARTING)], BUSY, ["o1"], UNKNOWN),
        ([worker("o1"), worker("n", phase=Phase.STARTING, admitted=False), worker("o2", phase=Phase.DRAINING)],
         BUSY, ["o1"], UNKNOWN),
        ([worker("o1", phase=Phase.STARTING, age=119.0), worker("n")], BUSY, ["o1"], UNKNOWN),
        # A new worker has said it.
        ([worker("o1"), worker("n", "r")], contested(RENDER), ["o1"], QUEUED),
        ([worker("o1-a"), worker("o1-b", busy=1), worker("n", "r")], contested(RENDER), ["o1-b"], QUEUED),
        ([worker("o1", "m"), worker("o2", "r"), worker("n", "rm")],
         contested(RENDER, MAIL), ["o1", "o2"], QUEUED),
        ([worker("o1"), worker("o2", "r"), worker("n", "rm")], contested(RENDER, MAIL), ["o1"], QUEUED),
    ],
)  # fmt: skip
def test_who_stays(
    workers: list[WorkerFacts],
    seen: ClassFacts,
    names: list[str],
    reason: Reason,
) -> None:
    found = kept(workers, "r1", 1, seen)
    assert found is not None
    assert (sorted(found.workers), found.beside, found.reason) == (sorted(names), True, reason)
    more = kept(workers, "r1", len(names) + 1, seen)
    assert more == replace(found, beside=False), "a new one has a place of its own"


@pytest.mark.parametrize(
    ("workers", "seen"),
    [
        ([worker("o1")], ClassFacts()),  # nothing is queued
        ([worker("o1")], None),
        ([worker("n", "r")], contested(RENDER)),
        ([worker("o1", phase=Phase.BACKOFF)], BUSY),  # it understands nothing, for it does not come up
        ([worker("o1", phase=Phase.RETIRED)], BUSY),
        ([worker("o1"), worker("n", phase=Phase.STARTING, admitted=False)], BUSY),  # no room for both
        ([worker("o1"), worker("n")], BUSY),  # the ordinary rollout
        ([worker("o1", phase=Phase.STARTING, age=120.0), worker("n")], BUSY),
        ([worker("o1", phase=Phase.BACKOFF), worker("n")], BUSY),
        ([worker("o1", "m"), worker("n")], contested(MAIL)),  # what only new ones understand
        ([worker("o1", "r"), worker("n", "r")], contested(RENDER)),
        ([worker("o1"), worker("n-a", "r"), worker("n-b")], contested(RENDER)),
        ([worker("o1"), worker("n")], contested(RENDER)),
    ],
)
def test_nobody_stays(workers: list[WorkerFacts], seen: ClassFacts | None) -> None:
    assert kept(workers, "r1", 1, seen) is None


def test_the_message_names_kind_version_count_and_remedy() -> None:
    found = kept([worker("o1"), worker("n", "rm")], "r1", 1, contested(RENDER, MAIL))
    assert found is not None
    assert "(3 of render version 1, 1 of mail version 2); o1 stays until they are worked off" in found.message
    assert "`jobqueue list --kind render --status pending` and `jobqueue cancel` them" in found.message


def test_one_that_is_started_again_in_between_stays_kept() -> None:
    held = pool(worker("o1"), worker("n", "r"), seen=contested(RENDER))
    again = pool(worker("o1", phase=Phase.BACKOFF), worker("n"), before=held)
    assert again.kept == held.kept is not None
    assert pool(worker("o1", phase=Phase.STARTING), worker("n"), seen=ClassFacts(), before=held).kept is None


def test_the_last_old_one_is_neither_replaced_nor_retired_and_a_new_one_comes_beside_it() -> None:
    first = pool(worker("o1"))
    assert first.kept is not None
    assert first.kept.beside
    assert (first.stop, first.retire, first.rollout and first.rollout.replace) == ((), (), None)
    coming = pool(worker("o1"), STARTING, before=first)
    held = pool(worker("o1"), worker("n", "r"), seen=contested(RENDER), before=coming)
    for each in (coming, held):
        assert (each.stop, each.retire, each.rollout and each.rollout.replace) == ((), (), None)
    assert held.rollout is not None
    assert held.rollout.reason is QUEUED
    worked_off = pool(worker("o1"), worker("n"), before=held)
    assert worked_off.kept is None
    assert [v.worker for v in worked_off.retire] == ["o1"]


def test_an_old_one_works_until_the_one_that_was_started_beside_it_does() -> None:
    assert pool(worker("o1"), STARTING, seen=ClassFacts()).retire == ()


def test_nobody_is_too_many_while_an_old_one_is_kept() -> None:
    found = pool(worker("o1-a"), worker("o1-b"), worker("o1-c"))
    assert found.kept is not None
    assert found.retire == ()


def test_with_room_for_one_only_the_old_one_makes_it() -> None:
    waits = worker("n", phase=Phase.STARTING, admitted=False)
    assert [v.worker for v in pool(worker("o1"), waits).retire] == ["o1"]


def test_a_pin_to_none_ends_the_kept_too() -> None:
    facts = Facts(classes={"email": contested(RENDER)}, workers=(worker("o1"), worker("n", "r")))
    found = plan(asked(spec(replicas={"min": 0, "pin": 0})), facts, None, now=100.0).pool("email")
    assert found is not None
    assert found.kept is None
    assert {v.worker for v in found.retire} >= {"o1"}


fleets = st.lists(
    st.tuples(
        st.sampled_from(["n", "o1", "o2"]),
        st.sampled_from(["", "r", "m", "rm"]),
        st.just(Phase.READY) | st.sampled_from(Phase),
        st.integers(0, 2),
    ),
    max_size=6,
)


@given(fleets, st.integers(1, 4), st.sets(st.sampled_from([RENDER, MAIL])))
def test_nothing_that_is_queued_loses_its_last_worker_to_a_rollout(
    fleet: list[Any], replicas: int, queued: set[QueuedVersion]
) -> None:
    workers = [worker(f"{who}-{i}", lacks, phase=phase, busy=busy) for i, (who, lacks, phase, busy) in enumerate(fleet)]
    found = pool(*workers, seen=contested(*queued), replicas=replicas)
    going = {v.worker for v in (*found.stop, *found.retire)}
    if found.rollout is not None and found.rollout.replace is not None:
        going.add(found.rollout.replace.worker)
    able = [w for w in workers if w.phase is Phase.READY]
    if any(w.revision == "r1" for w in able) and any(w.revision != "r1" for w in able):
        for version in queued:
            knowing = [w.name for w in able if version.name not in w.lacks]
            assert not knowing or not set(knowing) <= going
    if found.kept is not None:
        assert not set(found.kept.workers) & going
        assert not found.retire, "nobody is too many in the middle of it"


KEPT = Kept(("o1",), beside=True, reason=QUEUED, message="")
TRIED = replace(KEPT, reason=UNKNOWN)
OLD = [worker(f"o1-{n}") for n in range(3)]
READY = [worker(f"n-{n}") for n in range(3)]


@pytest.mark.parametrize(
    ("told", "workers", "replicas", "surge", "manner"),
    [
        (None, OLD, 3, True, Rolling(1, 0)),
        (None, OLD, 3, False, Rolling(0, 1)),
        (TRIED, OLD, 3, True, Rolling(1, 0, keeps=True)),
        (TRIED, OLD, 3, False, Rolling(0, 1, keeps=True)),
        (TRIED, OLD[:1], 1, False, Rolling(1, 0, keeps=True)),
        # What new pods make up for goes, down to the one that is kept.
        (KEPT, [*OLD, READY[0]], 3, True, Rolling(1, 1, keeps=True)),
        (KEPT, [*OLD[:1], *READY], 3, True, Rolling(1, 2, keeps=True)),
        (KEPT, [*OLD[:1], *READY[:2]], 3, False, Rolling(0, 2, keeps=True)),
        (KEPT, [OLD[0], READY[0]], 1, False, Rolling(1, 0, keeps=True)),
        (KEPT, [*OLD, worker("o2"), READY[0]], 3, True, Rolling(1, 0, keeps=True)),
    ],
)
def test_what_a_deployment_is_told(
    told: Kept | None,
    workers: list[WorkerFacts],
    replicas: int,
    surge: bool,  # noqa: FBT001 - a parameter
    manner: Rolling,
) -> None:
    found = rolling(told, workers, "r1", replicas=replicas, surge=surge)
    assert found == manner
    spec_ = found.fields()
    assert Rolling.of(spec_, surge=surge) == manner, "an operator that is blind goes on as it was told"
    assert spec_.get("progressDeadlineSeconds", 1) > spec_.get("minReadySeconds", 0)


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.booleans(), st.booleans())
def test_a_deployment_leaves_the_kept_and_its_strategy_is_one_that_a_server_takes(
    old: int,
    new: int,
    replicas: int,
    surge: bool,  # noqa: FBT001 - drawn
    queued: bool,  # noqa: FBT001 - drawn
) -> None:
    workers = [worker(f"o1-{n}") for n in range(old)] + [worker(f"n-{n}") for n in range(new)]
    found = rolling(KEPT if queued else TRIED, workers, "r1", replicas=replicas, surge=surge)
    assert found.surge + found.unavailable > 0
    assert found.unavailable == 0 or replicas - found.unavailable >= len(KEPT.workers)
