import pytest

from jobqueue_operator.planner.facts import ClassFacts, Facts, Phase, WorkerFacts
from jobqueue_operator.up.finish import STUCK_AFTER, Ending, Verdict
from services.said import Said


@pytest.fixture
def said() -> Said:
    return Said()


READY = WorkerFacts(name="w", class_="email", phase=Phase.READY, revision="r")


def judge(
    verdict: Verdict,
    seen: ClassFacts,
    *,
    soon: int = 0,
    looping: dict[str, str] | None = None,
    worker: WorkerFacts = READY,
    elapsed: float = 0.0,
    visible: bool = True,
) -> int | None:
    facts = Facts(classes={"email": seen}, workers=(worker,), visible=visible)
    return verdict.of(["email"], facts, {"email": soon}, looping or {}, elapsed=elapsed, now=elapsed)


@pytest.mark.parametrize(
    "seen",
    [
        ClassFacts(ready=1),
        ClassFacts(in_flight=1),
        ClassFacts(in_flight=1, paused=True),
        ClassFacts(ready=2, expired=2),
    ],
)
def test_work_goes_on_while_there_is_some(said: Said, seen: ClassFacts) -> None:
    assert judge(Verdict(Ending(when_empty=True), said), seen) is None


def test_work_that_is_due_soon_is_waited_for(said: Said) -> None:
    verdict = Verdict(Ending(when_empty=True), said)
    assert judge(verdict, ClassFacts(scheduled=2), soon=1) is None
    assert judge(verdict, ClassFacts(scheduled=2)) == 0
    assert said.lines == ["info: class email: 2 jobs are scheduled for later"]


def test_what_is_paused_is_not_waited_for_and_said(said: Said) -> None:
    assert judge(Verdict(Ending(when_empty=True), said), ClassFacts(ready=3, paused=True)) == 0
    assert said.lines == ["warning: class email is paused: 3 ready jobs stay"]


def test_what_is_pinned_to_no_worker_is_not_waited_for_and_said(said: Said) -> None:
    verdict = Verdict(Ending(when_empty=True), said)
    for seen, status in ((ClassFacts(ready=3, in_flight=1), None), (ClassFacts(ready=3), 0)):
        facts = Facts(classes={"email": seen})
        assert verdict.of(["email"], facts, {}, {}, pinned=["email"], elapsed=0.0, now=0.0) == status
    assert said.lines == ["warning: class email is pinned to 0: 3 ready jobs stay"]


def test_a_queue_that_cannot_be_read_is_not_empty(said: Said) -> None:
    assert judge(Verdict(Ending(when_empty=True), said), ClassFacts(), visible=False) is None


def test_jobs_whose_workers_do_not_come_up_are_a_failure(said: Said) -> None:
    assert judge(Verdict(Ending(when_empty=True), said), ClassFacts(ready=1), looping={"email": "no module"}) == 1
    assert said.lines == ["error: class email: jobs wait, and its workers do not come up: no module"]


def test_jobs_nobody_understands_are_a_failure_after_a_while(said: Said) -> None:
    verdict = Verdict(Ending(when_empty=True), said)
    hopeless = ClassFacts(ready=4, unsupported=4)
    assert judge(verdict, hopeless, elapsed=0.0) is None
    assert judge(verdict, hopeless, elapsed=STUCK_AFTER) == 1
    assert "no worker here understands 4 ready jobs" in said.lines[0]


def test_hope_starts_the_wait_again(said: Said) -> None:
    verdict = Verdict(Ending(when_empty=True), said)
    hopeless = ClassFacts(ready=4, unsupported=4)
    assert judge(verdict, hopeless, elapsed=0.0) is None
    assert judge(verdict, ClassFacts(ready=4, unsupported=3), elapsed=STUCK_AFTER) is None
    assert judge(verdict, hopeless, elapsed=STUCK_AFTER + 1) is None
    starting = WorkerFacts(name="w", class_="email", phase=Phase.STARTING, revision="r")
    assert judge(verdict, hopeless, elapsed=10 * STUCK_AFTER, worker=starting) is None


def test_a_limited_time_ends_whatever_waits(said: Said) -> None:
    verdict = Verdict(Ending(after=5.0), said)
    assert judge(verdict, ClassFacts(ready=1), elapsed=4.9) is None
    assert judge(verdict, ClassFacts(ready=1), elapsed=5.0) == 0
    assert judge(verdict, ClassFacts(), elapsed=5.0, looping={"email": "x"}) == 1


def test_without_an_ending_only_a_signal_ends_it(said: Said) -> None:
    assert judge(Verdict(Ending(), said), ClassFacts(), elapsed=1e9) is None


def test_a_class_that_went_to_zero_over_jobs_nobody_understands_gives_no_hope(said: Said) -> None:
    verdict = Verdict(Ending(when_empty=True), said)
    hopeless = ClassFacts(ready=4, unsupported=4)
    gone = WorkerFacts(name="w", class_="other", phase=Phase.READY, revision="r")
    assert judge(verdict, hopeless, elapsed=0.0, worker=gone) is None
    assert judge(verdict, hopeless, elapsed=2 * STUCK_AFTER, worker=gone) is None, "nobody has looked at them yet"
    assert judge(verdict, hopeless, elapsed=3 * STUCK_AFTER) is None
    draining = WorkerFacts(name="w", class_="email", phase=Phase.DRAINING, revision="r")
    assert judge(verdict, hopeless, elapsed=3.5 * STUCK_AFTER, worker=draining) is None
    assert judge(verdict, hopeless, elapsed=4 * STUCK_AFTER, worker=gone) == 1
