"""Workers come, run jobs, and go, without losing or repeating one that they need not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from e2e.clusters import eventually
from e2e.places import job_class

if TYPE_CHECKING:
    from e2e.places import Place

PEAK = """
    SELECT max(running) FROM (
        SELECT sum(step) OVER (ORDER BY moment, step) AS running FROM (
            SELECT began AS moment, 1 AS step FROM call UNION ALL SELECT coalesce(ended, 'infinity'), -1 FROM call
        ) AS steps
    ) AS course
"""
"""How many calls ran at once, at most; of an end and a beginning at the same moment the end comes first."""


def test_burst_from_zero(place: Place) -> None:
    place.put(job_class(concurrency=4, replicas={"max": 4}))
    place.until_ready()
    assert place.pods() == {}
    place.enqueue("pause", 0.1, 2000)
    seen: set[str] = set()

    def done() -> bool:
        seen.update(place.pods())
        return place.jobs() == {"done": 2000}

    eventually(done, within=180, what="2,000 jobs to be done")
    assert 2 <= len(seen) <= 4
    assert place.attempts() == {1: 2000}
    place.until_pods(0)
    eventually(lambda: place.kubectl.get("jobqueue", "shop")["status"]["replicas"] == 0, within=60, what="zero said")


def test_cap(place: Place) -> None:
    capacity = {"apiVersion": "jobqueue.dev/v1alpha1", "kind": "DownstreamCapacity", "metadata": {"name": "api"}}
    place.kubectl.apply(capacity | {"spec": {"units": 3}})
    place.put(job_class(capacity={"ref": {"name": "api"}, "unitsPerJob": 1}))
    place.until_ready()
    place.enqueue("call", 0.5, 60)
    place.until_done(60)
    ((peak,),) = place.rows(PEAK)
    assert 2 <= peak <= 3
    status = place.kubectl.get("downstreamcapacity", "api")["status"]
    assert status["limit"] == 3
    assert status["allocations"][0]["jobQueue"] == f"{place.namespace}/shop"


def test_rollout(place: Place) -> None:
    place.put(job_class(replicas={"pin": 2}))
    before = place.until_pods(2)
    place.enqueue("call", 2, 40)
    place.until_calling(2)
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    place.kubectl("annotate", "jobqueue", "shop", f"restart.jobqueue.dev/work={stamp}")
    ends: dict[str, datetime] = {}  # by when a leaving worker has to be gone

    def replaced() -> bool:
        now = place.pods()
        for name in before:
            by = now.get(name, {"metadata": {}})["metadata"].get("deletionTimestamp")
            if by is not None:
                ends[name] = datetime.fromisoformat(by)
                assert datetime.now(UTC) < ends[name], f"{name} was killed at the end of its grace period"
        return not before.keys() & now.keys()

    eventually(replaced, within=180, what="the workers to be replaced")
    assert ends.keys() == before.keys()
    place.until_done(40)
    place.until_pods(2)
    assert place.attempts() == {1: 40}
    assert place.rows("SELECT count(*), count(ended) FROM call") == [(40, 40)]


def test_scale_in(place: Place) -> None:
    place.put(job_class(concurrency=1, replicas={"pin": 3}))
    place.until_pods(3)
    place.enqueue("call", 20, 3)
    place.until_calling(3)
    place.put(job_class(concurrency=1, replicas={"pin": 1}))
    place.until_done(3)
    place.until_pods(1)
    assert place.attempts() == {1: 3}
    assert place.rows("SELECT count(*), count(ended) FROM call") == [(3, 3)]


def test_kill(place: Place) -> None:
    place.put(job_class(lease={"duration": "10s"}, replicas={"pin": 2}))
    before = place.until_pods(2)
    place.enqueue("call", 8, 8)
    victim = place.until_calling(2)[0]
    assert victim in before
    place.kubectl("delete", "pod", victim, "--force", "--grace-period=0")
    place.until_done(8)
    cut: list[Any] = place.rows("SELECT DISTINCT job FROM call WHERE ended IS NULL")
    again = place.rows(
        "SELECT DISTINCT a.job FROM call a JOIN call b USING (job) WHERE a.ended IS NULL AND b.ended > a.began"
    )
    assert cut
    assert sorted(again) == sorted(cut)
    assert victim not in place.until_pods(2)
