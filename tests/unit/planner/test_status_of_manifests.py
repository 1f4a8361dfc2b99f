"""What a status says: one condition a type, the moment of its last change, and nothing that an API server refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jobqueue_operator.planner.facts import ClassFacts, Phase, WorkerFacts
from jobqueue_operator.planner.plan import Allocation, Decision, Kept, Pool, Reason, Remark, RolloutStep, Share, Terms
from jobqueue_operator.planner.plan import Condition as Word
from jobqueue_operator.planner.status import (
    ClassState,
    Condition,
    QueueState,
    age,
    capacity_status,
    merge,
    queue_status,
    same,
)
from jobqueue_operator.resources.status import DownstreamStatus, JobQueueStatus
from unit.planner import arbitrary

if TYPE_CHECKING:
    from jobqueue_operator.resources.model import Resource

THEN, NOW = "2026-03-01T08:00:00Z", "2026-03-01T09:00:00Z"
ACCEPTED = Condition("SpecAccepted", "True", "Accepted", "")
DATABASE = Condition("DatabaseReady", "True", "Reachable", "db:5432/shop")
HELD = Condition("Conflicting", "True", "HorizontalPodAutoscaler", "an autoscaler is aimed at it; delete it")


def takes(model: type[Resource], found: Any) -> None:
    """Hold a status to the model that the CRD's schema is generated from."""

    def frozen(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: frozen(inner) for key, inner in value.items()}
        return tuple(map(frozen, value)) if isinstance(value, list) else value

    model.model_validate(frozen(json.loads(json.dumps(found))))


def pool(replicas: int = 1, reason: Reason = Reason.DEMAND, *remarks: Remark, **fields: Any) -> Pool:
    terms = Terms(target=fields.pop("target", 30.0))
    return Pool("email", "r1", Decision(replicas, reason, "because", terms, remarks=remarks), **fields)


def class_(name: str = "email", made: Pool | None = None, facts: ClassFacts | None = None, **fields: Any) -> ClassState:
    return ClassState(name=name, pool=made or pool(), facts=facts or ClassFacts(), **fields)


def status(*classes: ClassState, before: Any = None, now: str = NOW, **fields: Any) -> dict[str, Any]:
    given_: dict[str, Any] = {
        "generation": 3,
        "accepted": ACCEPTED,
        "database": DATABASE,
        "classes": classes or (class_(),),
    } | fields
    found = queue_status(QueueState(**given_), before or {}, now=now)
    takes(JobQueueStatus, found)
    return found


def condition(found: dict[str, Any], type_: str) -> dict[str, Any]:
    (one,) = [each for each in found["conditions"] if each["type"] == type_]
    return one  # type: ignore[no-any-return]


def said(found: dict[str, Any], type_: str) -> tuple[str, str]:
    one = condition(found, type_)
    return one["status"], one["reason"]


def worker(name: str, phase: Phase = Phase.READY, error: str = "") -> WorkerFacts:
    return WorkerFacts(name=name, class_="email", phase=phase, revision="r1", last_error=error)


def test_all_is_well() -> None:
    found = status()
    assert {c["type"]: c["status"] for c in found["conditions"]} == {
        "Ready": "True",
        "SpecAccepted": "True",
        "DatabaseReady": "True",
        "MetricsAvailable": "True",
        "CapacityAvailable": "True",
        "Progressing": "False",
    }
    assert {c["observedGeneration"] for c in found["conditions"]} == {found["observedGeneration"]} == {3}


def test_numbers_are_sums_and_the_worst() -> None:
    one = ClassFacts(ready=3, in_flight=2, dead=1, scheduled=9, oldest_age=12.9)
    two = ClassFacts(ready=4, oldest_age=150)
    workers = [worker("a"), worker("b", Phase.DRAINING), worker("c", Phase.STARTING)]
    late = pool(2, Reason.MAXIMUM_REPLICAS)
    found = status(class_("email", pool(9), one, workers=workers), class_("sms", late, two))
    numbers = {k: v for k, v in found.items() if k not in {"conditions", "classes", "observedGeneration"}}
    assert numbers == {
        "reason": "MaximumReplicas",
        "replicas": 2,
        "readyJobs": 7,
        "inFlightJobs": 2,
        "deadJobs": 1,
        "oldestMessageAge": "2m",
    }
    assert found["classes"][0] == {
        "name": "email",
        "replicas": 2,
        "desiredReplicas": 9,
        "reason": "Demand",
        "message": "because",
        "readyJobs": 3,
        "inFlightJobs": 2,
        "scheduledJobs": 9,
        "deadJobs": 1,
        "oldestMessageAge": "12s",
    }


def test_a_number_that_could_not_be_read_is_absent() -> None:
    found = status(ClassState(name="email", pool=None, facts=None))
    assert found["classes"] == [{"name": "email", "replicas": 0}]
    assert "readyJobs" not in found
    assert said(found, "MetricsAvailable") == ("False", "QueueNotVisible")


def test_a_transition_is_a_change_of_status_alone() -> None:
    before = status(now=THEN)
    assert {c["lastTransitionTime"] for c in status(before=before)["conditions"]} == {THEN}
    failed = Condition("DatabaseReady", "False", "Unreachable", "no answer")
    after = status(before=before, database=failed)
    moved = {c["type"] for c in after["conditions"] if c["lastTransitionTime"] == NOW}
    assert moved == {"Ready", "DatabaseReady"}
    worse = Condition("DatabaseReady", "False", "LoginFailed", "wrong password")
    again = status(before=after, database=worse, now="2026-03-01T10:00:00Z")
    assert condition(again, "DatabaseReady")["lastTransitionTime"] == NOW
    assert condition(again, "DatabaseReady")["reason"] == "LoginFailed"


def test_what_held_once_is_shown_when_it_holds_no_more() -> None:
    before = status(others=[HELD], now=THEN)
    assert said(before, "Conflicting") == ("True", "HorizontalPodAutoscaler")
    after = status(before=before)
    assert said(after, "Conflicting") == ("False", "NotSo")
    assert condition(after, "Conflicting")["lastTransitionTime"] == NOW
    assert condition(status(before=after, now="later"), "Conflicting")["lastTransitionTime"] == NOW


def test_a_condition_of_somebody_else_is_left_to_them() -> None:
    theirs = {"type": "example.com/Audited", "status": "True", "reason": "Yes", "lastTransitionTime": THEN}
    assert "example.com/Audited" not in {c["type"] for c in status(before={"conditions": [theirs]})["conditions"]}


def test_what_holds_twice_is_one_condition_with_both_messages() -> None:
    other = Condition("Conflicting", "True", "DeploymentTaken", "rename the class")
    one = condition(status(others=[HELD, other]), "Conflicting")
    assert one["reason"] == "HorizontalPodAutoscaler"
    assert one["message"] == "an autoscaler is aimed at it; delete it; rename the class"


@pytest.mark.parametrize("before", [{}, {"conditions": None}, {"conditions": [None, {}, {"type": "Ready"}]}])
def test_a_status_of_which_anything_is_missing_is_none(before: Any) -> None:
    (one,) = merge([Condition("Ready", "True", "AsAsked", "")], [], before, 1, now=NOW)
    assert one["lastTransitionTime"] == NOW


def test_a_message_is_bounded() -> None:
    assert (
        len(condition(status(others=[Condition("HeadBlocked", "True", "X", "y" * 9000)]), "HeadBlocked")["message"])
        == 2000
    )


def test_a_refused_manifest_changes_nothing_and_says_so() -> None:
    refused = Condition("SpecAccepted", "False", "InvalidSpec", "spec.app: is missing")
    unknown = Condition("DatabaseReady", "Unknown", "NotLookedAt", "")
    found = status(accepted=refused, database=unknown, classes=[])
    assert said(found, "Ready") == ("False", "InvalidSpec")
    assert condition(found, "Ready")["message"] == "nothing is changed: spec.app: is missing"
    assert found["reason"] == "InvalidSpec"
    assert said(found, "MetricsAvailable") == ("Unknown", "NoDecision")


def test_what_the_api_server_refuses_and_workers_that_do_not_come_up() -> None:
    assert said(status(class_(refused="no such field")), "Ready") == ("False", "ApplyRefused")
    bad = [worker("a", Phase.BACKOFF, "ImagePullBackOff: no"), worker("b", Phase.DRAINING)]
    found = status(class_(workers=bad))
    assert said(found, "Ready") == ("False", "WorkersFailing")
    assert condition(found, "Ready")["message"] == "class email: a does not come up: ImagePullBackOff: no"
    for up in (Phase.READY, Phase.RETIRED):
        assert said(status(class_(workers=[*bad, worker("c", up)])), "Ready") == ("True", "AsAsked")


def test_workers_that_do_not_come_up_do_so_steadily() -> None:
    """Started again for a moment, or with one that starts for the first time beside it, a class is not well."""
    again = worker("a", Phase.STARTING, "CrashLoopBackOff: exit status 2: no app")
    for workers in ([again], [again, worker("b", Phase.STARTING)]):
        found = status(class_(workers=workers))
        assert said(found, "Ready") == ("False", "WorkersFailing")
        assert condition(found, "Ready")["message"].endswith("a does not come up: " + again.last_error)
    assert said(status(class_(workers=[worker("b", Phase.STARTING)])), "Ready") == ("True", "AsAsked")
    assert said(status(class_(workers=[worker("a", Phase.READY, again.last_error)])), "Ready") == ("True", "AsAsked")


def test_remarks_and_rollouts_are_conditions() -> None:
    blocked = Remark(Word.HEAD_BLOCKED, "no worker understands them")
    short = Remark(Word.AT_CAPACITY, "the downstream is full")
    stalled = RolloutStep(None, Reason.STALLED, "new pods do not become ready")
    rolling = RolloutStep(None, Reason.ROLLING, "one of three is new")
    found = status(
        class_("email", pool(1, Reason.DEMAND, blocked, short, rollout=stalled)),
        class_("sms", pool(1, Reason.DEMAND, blocked)),
    )
    assert condition(found, "HeadBlocked")["message"] == "no worker understands them; no worker understands them"
    assert said(found, "CapacityAvailable") == ("False", "AtCapacity")
    assert said(found, "RolloutStalled") == ("True", "RolloutStalled")
    assert said(found, "Progressing") == ("False", "RolloutStalled")
    assert said(status(class_(made=pool(rollout=rolling))), "Progressing") == ("True", "RollingOut")


def test_a_rollout_that_keeps_old_workers_for_what_is_queued_is_held_and_one_that_only_waits_is_not() -> None:
    held = Kept(("a",), beside=True, reason=Reason.OLD_VERSION_QUEUED, message="a stays")
    found = status(class_(made=pool(kept=held)))
    assert said(found, "RolloutHeld") == ("True", "OldVersionQueued")
    assert condition(found, "RolloutHeld")["message"] == "class email: a stays"
    waits = pool(kept=replace(held, reason=Reason.WAITING_FOR_READY))
    assert "RolloutHeld" not in [c["type"] for c in status(class_(made=waits))["conditions"]]


def test_blindness_is_said_with_its_reason() -> None:
    assert said(status(class_(made=pool(1, Reason.FALLBACK))), "MetricsAvailable") == ("False", "Fallback")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (0.9, "0s"), (119.9, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172_799, "47h"),
        (172_800, "2d"), (1e9, "11574d"), (-5, "0s"), (float("nan"), "0s"), (float("inf"), "11574074d"),
    ],
)  # fmt: skip
def test_ages(seconds: float, text: str) -> None:
    assert age(seconds) == text


def test_numbers_that_move_all_the_time_make_no_other_status() -> None:
    some, more = [worker("a")], [worker("a"), worker("b")]
    one = status(class_(facts=ClassFacts(ready=0, dead=1), workers=some), others=[HELD], now=THEN)
    two = status(class_(facts=ClassFacts(ready=9, dead=2, oldest_age=30), workers=more), others=[HELD], before=one)
    assert same(one, two)
    assert same(one, two | {"conditions": two["conditions"][::-1]}), "their order says nothing"
    assert not same({}, one)


def test_what_is_news_is_written_at_once() -> None:
    one = status(others=[HELD], now=THEN)
    assert same(one, status(others=[HELD], before=one))
    assert not same(one, status(class_(made=pool(2)), others=[HELD], before=one))
    assert not same(one, status(class_(made=pool(1, Reason.IDLE)), others=[HELD], before=one))
    assert not same(one, status(before=one))
    assert not same(one, status(others=[HELD], before=one, generation=4))
    assert not same(one, status(class_(workers=[worker("a")]), others=[HELD], before=one)), "the first worker"
    assert not same(one, status(class_(facts=ClassFacts(dead=1)), others=[HELD], before=one)), "the first dead job"


def allocation(**fields: Any) -> Allocation:
    given_: dict[str, Any] = {
        "downstream": "db",
        "ceiling": 10,
        "limit": 8,
        "in_use": 3,
        "reason": Reason.SPEC_LIMIT,
        "message": "as said",
    }
    return Allocation(**given_ | fields)


def capacity(found: Allocation | None, problem: Condition | None = None, before: Any = None) -> dict[str, Any]:
    made = capacity_status(found, problem, before or {}, generation=2, now=NOW)
    takes(DownstreamStatus, made)
    return made


def test_a_downstream_says_who_has_how_much() -> None:
    share = Share(pool="ns/shop/email", minimum=1, asked=9, allocated=5, replicas=2, held_back_by=("ns/shop/sms",))
    found = capacity(allocation(shares=(share,)))
    assert (found["units"], found["limit"], found["inUse"]) == (10, 8, 3)
    assert found["allocations"] == [
        {"jobQueue": "ns/shop", "class": "email", "allocated": 5, "asked": 9, "heldBackBy": ["ns/shop/sms"]}
    ]
    assert said(found, "Ready") == ("True", "SpecLimit")
    assert "inUse" not in capacity(allocation(in_use=None))


def test_a_saturated_downstream_says_so_in_the_condition_that_its_column_reads() -> None:
    remark = Remark(Word.DOWNSTREAM_SATURATED, "more at once do not get more done")
    found = capacity(allocation(remarks=(remark,)))
    assert said(found, "Saturated") == ("True", "DownstreamSaturated")
    crd = yaml.safe_load((Path(__file__).parents[3] / "crds" / "downstreamcapacities.yaml").read_text())
    columns = [column["jsonPath"] for column in crd["spec"]["versions"][0]["additionalPrinterColumns"]]
    for each in found["conditions"]:
        assert f'.status.conditions[?(@.type=="{each["type"]}")].status' in columns
    assert said(capacity(allocation(), before=found), "Saturated") == ("False", "NotSo")


def test_a_downstream_that_nobody_uses_and_one_that_is_wrong() -> None:
    assert said(capacity(None), "Ready") == ("True", "Unused")
    assert said(capacity(None, Condition("Ready", "False", "InvalidSpec", "spec.units: is missing")), "Ready") == (
        "False",
        "InvalidSpec",
    )


def test_more_shares_than_a_status_holds() -> None:
    shares = tuple(
        Share(pool=f"ns/q{n}/c", minimum=0, asked=0, allocated=0, replicas=0, held_back_by=("a/b/c",) * 60)
        for n in range(1200)
    )
    found = capacity(allocation(shares=shares))
    assert (len(found["allocations"]), len(found["allocations"][0]["heldBackBy"])) == (1000, 50)


words = st.builds(
    Condition,
    st.just("DatabaseReady"),
    st.sampled_from(["True", "False", "Unknown"]),
    st.just("Why"),
    st.text(max_size=5),
)
states = st.builds(
    QueueState,
    generation=st.integers(1, 10**9),
    accepted=words,
    database=words,
    classes=st.lists(
        st.builds(
            ClassState,
            name=st.sampled_from(["a", "b"]),
            pool=st.none() | st.builds(Pool, st.just("a"), st.just("r1"), arbitrary.decisions),
            facts=st.none() | arbitrary.classes,
            workers=st.lists(arbitrary.workers, max_size=2),
            refused=st.text(max_size=3),
        ),
        max_size=2,
        unique_by=lambda each: each.name,
    ),
)


@settings(max_examples=30)
@given(first=states, second=states)
def test_whatever_was_found_an_api_server_takes_the_status(first: QueueState, second: QueueState) -> None:
    before = queue_status(first, {}, now=THEN)
    after = queue_status(second, before, now=NOW)
    for found in (before, after):
        takes(JobQueueStatus, found)
        types = [c["type"] for c in found["conditions"]]
        assert len(types) == len(set(types))
    assert queue_status(second, after, now="later") == after
    assert same(after, after)


@settings(max_examples=20)
@given(plan=arbitrary.plans)
def test_whatever_was_allocated_an_api_server_takes_the_status(plan: Any) -> None:
    for each in plan.downstreams:
        found = capacity_status(each, None, {}, generation=1, now=NOW)
        takes(DownstreamStatus, found)
