"""Which pod goes is a ReplicaSet's choice: the number falls only when whatever it chooses was chosen before."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cmp_to_key
from math import log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobqueue_operator.platforms.kubernetes.pods import Pod
from jobqueue_operator.platforms.kubernetes.replicas import FIRST, NEXT, Step, step

NOW = 10_000.0


def pod(name: str, **fields: object) -> Pod:
    made = Pod(
        name=name, uid=name, revision="r1", created_at=0.0, started_at=0.0, scheduled=True, running=True, ready=True
    )
    return replace(made, **fields)  # type: ignore[arg-type]


PENDING = {"scheduled": False, "running": False, "ready": False}


def asked(pods: list[Pod], current: int, wanted: int, retired: str = "", stop: str = "") -> Step:
    return step(pods, current=current, wanted=wanted, retired=set(retired), stop=set(stop), revision="r1")


@dataclass
class Seen:
    """A pod as its ReplicaSet sees it, with what only that and the queue know."""

    pod: Pod
    neighbours: int
    ready_at: float
    busy: bool
    retired: bool = False
    cost: int = 0

    def older(self, other: Seen, at: float, others: float) -> int:
        ours, theirs = int(log2(max(NOW - at, 1))), int(log2(max(NOW - others, 1)))
        return ours - theirs or (-1 if self.pod.uid < other.pod.uid else 1)


def before(one: Seen, other: Seen) -> int:
    """Kubernetes' ActivePodsWithRanks.Less, as a comparison."""
    a, b = one.pod, other.pod
    for ours, theirs in (
        (a.scheduled, b.scheduled),
        (a.running, b.running),
        (a.ready, b.ready),
        (one.cost, other.cost),
        (other.neighbours, one.neighbours),
    ):
        if ours != theirs:
            return -1 if ours < theirs else 1
    if a.ready and b.ready and one.ready_at != other.ready_at:
        return one.older(other, one.ready_at, other.ready_at)
    if a.restarts != b.restarts:
        return b.restarts - a.restarts
    return one.older(other, a.created_at, b.created_at)


@dataclass
class ReplicaSet:
    """A Deployment with one ReplicaSet, and the queue that fences its workers."""

    replicas: int
    pods: dict[str, Seen] = field(default_factory=dict)
    named: int = 0

    def obey(self, uids: st.DataObject | None = None) -> list[str]:
        """Make or delete pods; return the names of those deleted."""
        while len(self.pods) < self.replicas:
            self.named += 1
            name = f"p{self.named}" if uids is None else f"{uids.draw(st.integers(0, 99)):02}-{self.named}"
            self.pods[name] = Seen(pod(name, **PENDING, created_at=NOW), 0, NOW, busy=False)
        doomed = sorted(self.pods.values(), key=cmp_to_key(before))[: len(self.pods) - self.replicas]
        for seen in doomed:
            del self.pods[seen.pod.name]
        return [seen.pod.name for seen in doomed]

    def seen(self) -> list[Pod]:
        return [seen.pod for seen in self.pods.values()]

    def mark(self, made: Step, *, read: bool) -> None:
        """Write costs; the ReplicaSet reads them now or later."""
        for seen in self.pods.values():
            if seen.pod.name in made.costs:
                seen.pod = replace(seen.pod, cost=made.costs[seen.pod.name] or 0)
            if read:
                seen.cost = seen.pod.cost

    def choose(self, wanted: int) -> tuple[set[str], set[str]]:
        """Fence workers as the planner does, idle ones first, or take them back; return the retired and the empty."""
        working = [seen for seen in self.pods.values() if not seen.retired]
        for seen in sorted(working, key=lambda s: (s.pod.running, s.busy))[: max(len(working) - wanted, 0)]:
            seen.retired = True
        for seen in [s for s in self.pods.values() if s.retired][: max(wanted - len(working), 0)]:
            seen.retired = False
        retired = {n for n, s in self.pods.items() if s.retired}
        return retired, {n for n in retired if not self.pods[n].busy}


flags = st.booleans()
pods_ = st.builds(
    Seen,
    st.builds(
        pod,
        st.uuids().map(str),
        scheduled=flags,
        running=flags,
        ready=flags,
        created_at=st.sampled_from([0.0, 9000.0, 9900.0]),
        restarts=st.integers(0, 2),
        cost=st.sampled_from([0, 0, 0, NEXT, FIRST, -5, 7]),
    ),
    neighbours=st.integers(0, 2),
    ready_at=st.sampled_from([0.0, 9000.0, 9990.0]),
    busy=flags,
)


@settings(max_examples=150)
@given(data=st.data(), pods=st.lists(pods_, max_size=6), current=st.integers(0, 7))
def test_no_pod_goes_that_was_not_chosen(data: st.DataObject, pods: list[Seen], current: int) -> None:
    cluster = ReplicaSet(current, {each.pod.name: each for each in pods})
    for seen in pods:
        seen.cost = seen.pod.cost
    cluster.obey(data)  # what it is deleting already, it has chosen
    for _ in range(data.draw(st.integers(1, 4))):
        for seen in cluster.pods.values():
            seen.busy &= data.draw(flags)
            seen.pod = replace(seen.pod, ready=data.draw(flags), running=True, scheduled=True)
            seen.cost = seen.pod.cost  # a second or more has gone by
        wanted = data.draw(st.integers(0, 6))
        retired, stop = cluster.choose(wanted)
        made = step(cluster.seen(), current=cluster.replicas, wanted=wanted, retired=retired, stop=stop, revision="r1")
        cluster.mark(made, read=data.draw(flags))
        assert made.replicas >= min(wanted, cluster.replicas)
        cluster.replicas = made.replicas
        assert set(cluster.obey(data)) <= stop


@settings(max_examples=60)
@given(data=st.data(), pods=st.lists(pods_, max_size=6), wanted=st.integers(0, 6))
def test_where_the_cluster_obeys_the_number_arrives_and_no_pod_keeps_a_mark(
    data: st.DataObject, pods: list[Seen], wanted: int
) -> None:
    cluster = ReplicaSet(len(pods), {each.pod.name: each for each in pods})
    for _ in range(6):
        for seen in cluster.pods.values():
            seen.busy = False
            seen.pod = replace(seen.pod, scheduled=True, running=True, ready=not seen.retired)
        retired, stop = cluster.choose(wanted)
        made = step(cluster.seen(), current=cluster.replicas, wanted=wanted, retired=retired, stop=stop, revision="r1")
        cluster.mark(made, read=True)
        cluster.replicas = made.replicas
        cluster.obey(data)
    assert len(cluster.pods) == wanted
    assert all(seen.pod.cost not in {FIRST, NEXT} for seen in cluster.pods.values())


def test_more_are_told_at_once_beside_the_fenced_ones() -> None:
    assert asked([pod("a"), pod("b")], 2, 9, retired="a").replicas == 10
    assert asked([], 0, 3).replicas == 3


def test_a_fenced_pod_is_marked_and_stays_while_it_works() -> None:
    assert asked([pod("a"), pod("b")], 2, 1, retired="a") == Step(2, {"a": NEXT})


def test_an_empty_one_that_is_marked_goes() -> None:
    assert asked([pod("a", cost=NEXT), pod("b")], 2, 1, retired="a", stop="a") == Step(1, {})


def test_an_empty_one_is_marked_to_go_before_one_that_still_works() -> None:
    two = [pod("a", cost=NEXT), pod("b", cost=NEXT), pod("c")]
    assert asked(two, 3, 1, retired="ab", stop="a") == Step(3, {"a": FIRST})
    two[0] = pod("a", cost=FIRST)
    assert asked(two, 3, 1, retired="ab", stop="a") == Step(2, {})


def test_a_mark_that_was_only_just_written_counts_for_nothing_yet() -> None:
    assert asked([pod("a"), pod("b")], 2, 1, retired="a", stop="a") == Step(2, {"a": NEXT})


def test_a_mark_that_is_only_just_taken_away_still_counts() -> None:
    three = [pod("a", cost=NEXT), pod("b", cost=NEXT), pod("c")]
    assert asked(three, 3, 2, retired="a", stop="a") == Step(3, {"b": None})


def test_whoever_is_taken_back_loses_its_mark_and_others_keep_costs_of_their_own() -> None:
    assert asked([pod("a", cost=FIRST), pod("b", cost=-7)], 2, 2) == Step(2, {"a": None})


@pytest.mark.parametrize("behind", [{"running": False}, {"ready": False}, {"cost": FIRST - 1}])
def test_the_number_waits_while_another_pod_would_go_first(behind: dict[str, object]) -> None:
    assert asked([pod("a", cost=FIRST), pod("b", **behind)], 2, 1, retired="a", stop="a").replicas == 2


def test_a_pod_that_does_not_exist_yet_goes_before_all() -> None:
    assert asked([pod("a"), pod("b")], 5, 2).replicas == 2


def test_what_is_being_deleted_already_is_not_asked_for_twice() -> None:
    going = [pod("a", cost=NEXT), pod("b"), pod("c")]
    assert asked(going, 2, 1, retired="a", stop="a").replicas == 2
    going[0] = replace(going[0], deleted_at=NOW)
    assert asked(going, 2, 2, retired="a", stop="a") == Step(2, {})


def test_nothing_falls_in_the_middle_of_a_rollout_unless_all_are_to_go() -> None:
    two = [pod("a", cost=NEXT, revision="old"), pod("b")]
    assert asked(two, 2, 1, retired="a", stop="a").replicas == 2
    assert asked(two, 2, 3).replicas == 3
    two[1] = pod("b", cost=NEXT)
    assert asked(two, 2, 0, retired="ab", stop="ab").replicas == 0
