from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from jobqueue.signals import ClassSnapshot, DatabaseSnapshot, DownstreamSnapshot, Snapshot, WorkerSnapshot
from jobqueue_operator import observe
from jobqueue_operator.planner.facts import ClassFacts, DownstreamFacts, Phase, WorkerFacts

NOW = datetime(2026, 1, 2, tzinfo=UTC)
EMAIL = ClassSnapshot(
    class_="email", paused=True, ready=5, scheduled=2, blocked_unsupported=1, blocked_key=2, blocked_tenant=0,
    estimated=False, oldest_age_seconds=7.25, age_quantiles_seconds=(), in_flight=3, expired=1,
    longest_running_seconds=0, lease_expirations=0, dead=4, oldest_dead_age_seconds=0, sleepers=0,
    target_age_seconds=60, lease_seconds=60, timeout_seconds=30, dead_retention_seconds=1, max_attempts=10,
    concurrency=10, downstream=None, units_per_job=1, units_per_pod=0,
)  # fmt: skip


def snapshot(*workers: WorkerSnapshot) -> Snapshot:
    return Snapshot(
        now=NOW,
        classes=(EMAIL,),
        workers=workers,
        downstreams=(DownstreamSnapshot("db", limit=40, in_use=7),),
        database=DatabaseSnapshot(0, "", 0, None, {}, {}, 0),
    )


def entry(id_: int, name: str, ago: float, **fields: Any) -> WorkerSnapshot:
    found = WorkerSnapshot(
        id=id_, name=name, class_="email", state="active", slots=10, units=0, in_flight=2,
        registered_at=NOW - timedelta(seconds=ago), seen_age_seconds=0.1, info={},
    )  # fmt: skip
    return replace(found, **fields)


def worker(name: str = "email-abcde", phase: Phase = Phase.STARTING, age: float = 10.0) -> WorkerFacts:
    return WorkerFacts(name=name, class_="email", phase=phase, revision="r", age=age)


def seen(*entries: WorkerSnapshot, of: WorkerFacts | None = None) -> WorkerFacts:
    (found,) = observe.facts(snapshot(*entries), [of or worker()]).workers
    return found


def test_a_snapshot_becomes_facts() -> None:
    facts = observe.facts(snapshot(), [])
    assert facts.visible
    assert facts.classes == {
        "email": ClassFacts(
            ready=5,
            blocked=3,
            unsupported=1,
            blocked_key=2,
            scheduled=2,
            in_flight=3,
            expired=1,
            dead=4,
            oldest_age=7.25,
            paused=True,
        )
    }
    assert facts.downstreams["db"] == (DownstreamFacts(limit=40, in_use=7),)


def test_without_a_snapshot_the_queue_is_not_visible() -> None:
    facts = observe.facts(None, [worker()])
    assert not facts.visible
    assert facts.workers == (worker(),)


def test_a_worker_is_ready_when_the_queue_knows_its_process() -> None:
    found = seen(entry(1, "email-abcde/boot/0", ago=9))
    assert (found.phase, found.busy) == (Phase.READY, 2)


def test_what_the_queue_knows_of_a_worker_becomes_facts() -> None:
    found = seen(entry(1, "email-abcde/boot-1", ago=9, slots=7, elapsed_seconds=2.5))
    assert (found.busy, found.elapsed, found.slots, found.admitted) == (2, 2.5, 7, True)
    assert seen(entry(1, "email-abcde/boot-1", ago=9, state="waiting")).admitted is False
    assert seen() == worker()


def test_a_start_lasts_from_the_creation_until_it_can_claim() -> None:
    def started(name: str = "email-abcde/boot-1", *, admitted: float = 9.0, ready: float | None = 6.5) -> float | None:
        return seen(
            entry(
                1,
                name,
                ago=9,
                admitted_at=NOW - timedelta(seconds=admitted),
                ready_at=None if ready is None else NOW - timedelta(seconds=ready),
            )
        ).started_in

    assert started() == 3.5
    assert started("email-abcde/boot-2") is None, "the process is older than this registration"
    assert started("email-abcde/boot-21") is None
    assert started("email-abcde/boot-11a") == 3.5
    assert started(ready=None) is None
    assert started(admitted=7.5) is None, "it waited for units"
    assert started(ready=10.5) == 0


def test_the_servers_connections_are_those_of_the_only_database() -> None:
    shot = replace(snapshot(), database=replace(snapshot().database, connections=97))
    assert observe.facts(shot, []).connections == {"": 97}
    assert observe.facts(snapshot(), []).connections == {}


def test_a_registration_of_the_process_before_does_not_make_it_ready() -> None:
    found = seen(entry(1, "email-abcde/boot/0", ago=11))
    assert (found.phase, found.busy) == (Phase.STARTING, 0)


def test_one_that_waits_for_admission_or_is_not_heard_of_is_not_ready() -> None:
    assert seen(entry(1, "email-abcde", ago=1, state="waiting")).phase is Phase.STARTING
    assert seen(entry(1, "email-abcde", ago=50, seen_age_seconds=31), of=worker(age=60)).phase is Phase.STARTING
    assert seen(entry(1, "email-abcde", ago=50, seen_age_seconds=29), of=worker(age=60)).phase is Phase.READY


def test_one_that_registered_and_still_imports_its_app_is_not_ready() -> None:
    assert seen(entry(1, "email-abcde", ago=1, seen_age_seconds=1)).phase is Phase.STARTING


def test_what_drains_or_waits_to_start_again_stays_so() -> None:
    assert seen(entry(1, "email-abcde", ago=1), of=worker(phase=Phase.DRAINING)).phase is Phase.DRAINING
    assert seen(entry(1, "email-abcde", ago=1), of=worker(phase=Phase.BACKOFF)).phase is Phase.BACKOFF


def test_another_worker_with_a_longer_name_is_not_it() -> None:
    assert seen(entry(1, "email-abcde-xxxxx/a", ago=1)).phase is Phase.STARTING
    assert seen(entry(1, "email-abcde/a", ago=1, class_="other")).phase is Phase.STARTING


def test_registrations_are_told_apart_by_their_process() -> None:
    shot = snapshot(
        entry(1, "email-abcde/a", ago=60), entry(2, "email-abcde/b", ago=5), entry(3, "email-other", ago=60)
    )
    assert observe.earlier_registrations(shot, worker()) == [1]
    assert observe.all_registrations(shot, "email", "email-abcde") == [1, 2]


def test_a_fenced_worker_is_retired_until_it_is_taken_back() -> None:
    fenced = seen(entry(1, "email-abcde", ago=5, state="retired"))
    assert (fenced.phase, fenced.busy, fenced.admitted) == (Phase.RETIRED, 2, True)
    drains = seen(entry(1, "email-abcde", ago=5, state="retired"), of=worker(phase=Phase.DRAINING))
    assert drains.phase is Phase.DRAINING


def test_a_fence_of_the_process_before_does_not_hold_the_one_it_has_now() -> None:
    assert seen(entry(1, "email-abcde/a", ago=60, state="retired")).phase is Phase.STARTING
    both = seen(entry(1, "email-abcde/a-1", ago=9, state="retired"), entry(2, "email-abcde/a-2", ago=2))
    assert both.phase is Phase.READY, "its next runner registered anew, and claims"


def test_one_that_waits_for_units_is_not_admitted() -> None:
    assert not seen(entry(1, "email-abcde", ago=1, state="waiting")).admitted
    assert seen(entry(1, "email-abcde", ago=1)).admitted
    assert seen().admitted, "nothing is known of one that has not registered"


def test_registrations_of_the_current_process_by_state() -> None:
    shot = snapshot(
        entry(1, "email-abcde/a", ago=60),
        entry(2, "email-abcde/b", ago=5),
        entry(3, "email-abcde/c", 4, state="retired"),
    )
    assert observe.registrations(shot, worker(), state="active") == [2]
    assert observe.registrations(shot, worker(), state="retired") == [3]
